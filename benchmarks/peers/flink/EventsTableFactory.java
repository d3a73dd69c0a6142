import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.ConfigOption;
import org.apache.flink.connector.datagen.source.DataGeneratorSource;
import org.apache.flink.connector.datagen.source.GeneratorFunction;
import org.apache.flink.table.connector.ChangelogMode;
import org.apache.flink.table.connector.source.DynamicTableSource;
import org.apache.flink.table.connector.source.LookupTableSource;
import org.apache.flink.table.connector.source.ScanTableSource;
import org.apache.flink.table.connector.source.SourceProvider;
import org.apache.flink.table.connector.source.lookup.LookupFunctionProvider;
import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.factories.DynamicTableSourceFactory;
import org.apache.flink.table.functions.LookupFunction;
import org.apache.flink.table.types.DataType;

/**
 * Tables for the benchmarks, by the option `kind`.
 *
 * <p>`nexmark` has events, `numbers` has the numbers from 0 on, and `side-input` is looked up by a key.
 */
public final class EventsTableFactory implements DynamicTableSourceFactory {
    @Override
    public DynamicTableSource createDynamicTableSource(Context context) {
        Map<String, String> options = context.getCatalogTable().getOptions();
        return switch (options.get("kind")) {
            case "nexmark" -> {
                Events events = new Events(options);
                yield new Generated(events::event, options, context.getPhysicalRowDataType());
            }
            case "numbers" -> new Generated(GenericRowData::of, options, context.getPhysicalRowDataType());
            case "side-input" -> new SideInput();
            default -> throw new IllegalArgumentException("no kind of table: " + options.get("kind"));
        };
    }

    @Override
    public String factoryIdentifier() {
        return "events";
    }

    @Override
    public Set<ConfigOption<?>> requiredOptions() {
        return Set.of();
    }

    @Override
    public Set<ConfigOption<?>> optionalOptions() {
        return Set.of();
    }

    private record Generated(GeneratorFunction<Long, RowData> make, Map<String, String> options, DataType type)
            implements ScanTableSource {
        @Override
        public ChangelogMode getChangelogMode() {
            return ChangelogMode.insertOnly();
        }

        @Override
        public ScanRuntimeProvider getScanRuntimeProvider(ScanContext context) {
            TypeInformation<RowData> information = context.createTypeInformation(type);
            long count = Long.parseLong(options.get("count"));
            return SourceProvider.of(new DataGeneratorSource<>(make, count, information));
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "events";
        }
    }

    /** A value for two of three keys, as in nexmark_side_input.py. */
    public static final class SideInput implements LookupTableSource {
        private static final int KEYS = 10_000;

        @Override
        public LookupRuntimeProvider getLookupRuntimeProvider(LookupContext context) {
            return LookupFunctionProvider.of(new Values());
        }

        @Override
        public DynamicTableSource copy() {
            return this;
        }

        @Override
        public String asSummaryString() {
            return "side input";
        }

        public static final class Values extends LookupFunction {
            private transient RowData[] rows;

            @Override
            public Collection<RowData> lookup(RowData wanted) {
                if (rows == null) {
                    rows = new RowData[KEYS];
                    for (long key = 0; key < KEYS; key++) {
                        StringData value = StringData.fromString("value-" + key * 7919 % KEYS);
                        rows[(int) key] = key % 3 == 0 ? null : GenericRowData.of(key, value);
                    }
                }
                RowData row = rows[(int) wanted.getLong(0)];
                return row == null ? List.of() : List.of(row);
            }
        }
    }
}
