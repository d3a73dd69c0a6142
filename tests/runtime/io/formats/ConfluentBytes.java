import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FieldDescriptor;
import com.google.protobuf.DynamicMessage;
import io.confluent.kafka.schemaregistry.avro.AvroSchema;
import io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.SchemaRegistryClient;
import io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;

/** Writes the bytes of Confluent's serialisers, a line `name hex` each. */
public class ConfluentBytes {
  static final StringBuilder out = new StringBuilder();

  public static void main(String[] args) throws Exception {
    String url = args[0];
    Path folder = Path.of(args[1]);
    Map<String, Object> config = Map.of("schema.registry.url", url, "auto.register.schemas", true);
    KafkaAvroSerializer avro = new KafkaAvroSerializer();
    avro.configure(config, false);
    for (String name : new String[] {"order", "order2"}) {
      Schema schema = new Schema.Parser().parse(Files.readString(folder.resolve(name + ".avsc")));
      GenericRecord order = new GenericData.Record(schema);
      order.put("id", 42L);
      order.put("user", "Zoë");
      order.put("amount", 12.5);
      order.put("note", null);
      if (schema.getField("country") != null) {
        order.put("country", "LU");
      }
      add("avro_" + name, avro.serialize("orders", order));
    }
    KafkaAvroSerializer key = new KafkaAvroSerializer();
    key.configure(config, true);
    Schema keySchema = new Schema.Parser().parse(Files.readString(folder.resolve("key.avsc")));
    GenericRecord record = new GenericData.Record(keySchema);
    record.put("id", 42L);
    add("avro_key", key.serialize("orders", record));

    ProtobufSchema proto = new ProtobufSchema(Files.readString(folder.resolve("shop.proto")));
    KafkaProtobufSerializer<DynamicMessage> protobuf = new KafkaProtobufSerializer<>();
    protobuf.configure(config, false);
    for (String name : new String[] {"Order", "Refund", "Refund.Reason"}) {
      Descriptor kind = proto.toDescriptor(name);
      DynamicMessage.Builder message = DynamicMessage.newBuilder(kind);
      message.setField(kind.findFieldByName("id"), 42L);
      message.setField(kind.findFieldByName("text"), "Zoë");
      add("protobuf_" + name, protobuf.serialize("shop", message.build()));
    }
    // Schemas that use other schemas.
    String money = Files.readString(folder.resolve("money.avsc"));
    SchemaRegistryClient client = new CachedSchemaRegistryClient(url, 10);
    client.register("money", new AvroSchema(money));
    AvroSchema wallet =
        new AvroSchema(
            Files.readString(folder.resolve("wallet.avsc")),
            List.of(new SchemaReference("shop.Money", "money", 1)),
            Map.of("shop.Money", money),
            null);
    client.register("wallets-value", wallet);
    KafkaAvroSerializer latest = new KafkaAvroSerializer(client);
    latest.configure(
        Map.of(
            "schema.registry.url", url,
            "auto.register.schemas", false,
            "use.latest.version", true,
            "latest.compatibility.strict", false),
        false);
    Schema moneySchema = wallet.rawSchema().getField("cash").schema();
    GenericRecord cash = new GenericData.Record(moneySchema);
    cash.put("cents", 250L);
    GenericRecord full = new GenericData.Record(wallet.rawSchema());
    full.put("id", 42L);
    full.put("cash", cash);
    full.put("saved", null);
    add("avro_wallet", latest.serialize("wallets", full));

    String moneyProto = Files.readString(folder.resolve("money.proto"));
    Descriptor purse =
        new ProtobufSchema(
                Files.readString(folder.resolve("purse.proto")),
                List.of(new SchemaReference("shop/money.proto", "shop/money.proto", 1)),
                Map.of("shop/money.proto", moneyProto),
                null,
                null)
            .toDescriptor("shop.Purse");
    FieldDescriptor field = purse.findFieldByName("cash");
    DynamicMessage.Builder coins = DynamicMessage.newBuilder(field.getMessageType());
    coins.setField(field.getMessageType().findFieldByName("cents"), 250L);
    DynamicMessage message =
        DynamicMessage.newBuilder(purse)
            .setField(purse.findFieldByName("id"), 42L)
            .setField(field, coins.build())
            .build();
    add("protobuf_Purse", protobuf.serialize("purses", message));
    Files.write(folder.resolve("out"), out.toString().getBytes(StandardCharsets.UTF_8));
  }

  static void add(String name, byte[] bytes) {
    out.append(name).append(' ').append(HexFormat.of().formatHex(bytes)).append('\n');
  }
}
