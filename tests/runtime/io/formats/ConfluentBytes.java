import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.DynamicMessage;
import io.confluent.kafka.schemaregistry.protobuf.ProtobufSchema;
import io.confluent.kafka.serializers.KafkaAvroSerializer;
import io.confluent.kafka.serializers.protobuf.KafkaProtobufSerializer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
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
    Files.write(folder.resolve("out"), out.toString().getBytes(StandardCharsets.UTF_8));
  }

  static void add(String name, byte[] bytes) {
    out.append(name).append(' ').append(HexFormat.of().formatHex(bytes)).append('\n');
  }
}
