import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

import org.apache.flink.table.data.GenericRowData;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.TimestampData;

/**
 * The events of examples/nexmark/nexmark_events.py: the same for the same settings and numbers.
 *
 * <p>Texts come from a folder with one file for each pool, which nexmark_events.py writes.
 */
final class Events implements Serializable {
    private static final long FIRST_PERSON_ID = 1000;
    private static final long FIRST_CATEGORY = 10;
    private static final int CATEGORIES = 5;
    private static final int HOT_GROUP = 100;
    private static final int LEAD = 10;
    private static final int HOT_CHANNELS = 4;
    private static final int CHANNELS = 10_000;

    private final long seed;
    private final double millisecondsAnEvent;
    private final int persons;
    private final int auctions;
    private final int cycle;
    private final int inFlight;
    private final int active;
    private final int hotAuction;
    private final int hotBidder;
    private final int hotSeller;
    private final int group;
    private final long firstAuction;
    private final long base;
    private final String pools;

    private transient Pools texts;

    Events(Map<String, String> settings) {
        seed = mixed(Long.parseLong(settings.get("seed")));
        millisecondsAnEvent = 1000 / Double.parseDouble(settings.get("event_rate"));
        persons = number(settings, "persons");
        auctions = number(settings, "auctions");
        cycle = persons + auctions + number(settings, "bids");
        inFlight = number(settings, "in_flight_auctions");
        active = number(settings, "active_people");
        hotAuction = number(settings, "hot_auction_ratio");
        hotBidder = number(settings, "hot_bidder_ratio");
        hotSeller = number(settings, "hot_seller_ratio");
        group = number(settings, "out_of_order_group");
        firstAuction = number(settings, "first_auction_id");
        base = Long.parseLong(settings.get("base_time"));
        pools = settings.get("pools");
    }

    private static int number(Map<String, String> settings, String name) {
        return Integer.parseInt(settings.get(name));
    }

    /** The event of a number, as a row of `event_type`, the three kinds, and `dateTime`. */
    RowData event(long number) throws IOException {
        if (texts == null) {
            texts = new Pools(Path.of(pools));
        }
        long id = number / group * group + number * 953 % group;
        long moment = moment(id);
        int place = (int) (id % cycle);
        int kind = place < persons ? 0 : place < persons + auctions ? 1 : 2;
        Draws draws = new Draws(mixed(id + seed));
        TimestampData at = TimestampData.fromEpochMillis(moment);
        RowData made = switch (kind) {
            case 0 -> person(id, at, draws);
            case 1 -> auction(id, moment, at, draws);
            default -> bid(id, at, draws);
        };
        GenericRowData row = new GenericRowData(5);
        row.setField(0, kind);
        row.setField(1 + kind, made);
        row.setField(4, at);
        return row;
    }

    private long moment(long id) {
        return base + (long) (id * millisecondsAnEvent);
    }

    private RowData person(long id, TimestampData at, Draws draws) {
        StringData first = draws.oneOf(texts.first);
        StringData last = draws.oneOf(texts.last);
        return GenericRowData.of(
                lastPerson(id) + FIRST_PERSON_ID,
                StringData.fromString(first + " " + last),
                draws.oneOf(texts.email),
                draws.oneOf(texts.card),
                draws.oneOf(texts.city),
                draws.oneOf(texts.state),
                at,
                draws.oneOf(texts.person));
    }

    private RowData auction(long id, long moment, TimestampData at, Draws draws) {
        long hot = lastPerson(id) / HOT_GROUP * HOT_GROUP;
        boolean isHot = draws.below(hotSeller) > 0;
        long any = anyPerson(id, draws);
        long initial = draws.price();
        long horizon = moment(id + (long) inFlight * cycle / auctions) - moment;
        long length = 1 + draws.below(Math.max(2 * horizon, 1));
        StringData item = draws.oneOf(texts.item);
        StringData description = draws.oneOf(texts.description);
        long reserve = initial + draws.price();
        long category = FIRST_CATEGORY + draws.below(CATEGORIES);
        return GenericRowData.of(
                lastAuction(id) + firstAuction,
                item,
                description,
                initial,
                reserve,
                at,
                TimestampData.fromEpochMillis(moment + length),
                (isHot ? hot : any) + FIRST_PERSON_ID,
                category,
                draws.oneOf(texts.auction));
    }

    private RowData bid(long id, TimestampData at, Draws draws) {
        long last = lastAuction(id);
        long oldest = Math.max(last - inFlight, 0);
        long auction = oldest + draws.below(Math.max(last - oldest, 0) + 1 + LEAD);
        if (draws.below(hotAuction) > 0) {
            auction = Math.max(last, 0) / HOT_GROUP * HOT_GROUP;
        }
        boolean isHot = draws.below(hotBidder) > 0;
        long bidder = anyPerson(id, draws);
        if (isHot) {
            bidder = lastPerson(id) / HOT_GROUP * HOT_GROUP + 1;
        }
        boolean isHotChannel = draws.below(2) > 0;
        long hotChannel = CHANNELS + draws.below(HOT_CHANNELS);
        long anyChannel = draws.below(CHANNELS);
        int channel = (int) (isHotChannel ? hotChannel : anyChannel);
        return GenericRowData.of(
                auction + firstAuction,
                bidder + FIRST_PERSON_ID,
                draws.price(),
                texts.channel[channel],
                texts.url[channel],
                at,
                draws.oneOf(texts.bid));
    }

    private long lastPerson(long id) {
        return id / cycle * persons + Math.min(id % cycle, persons - 1);
    }

    private long lastAuction(long id) {
        return id / cycle * auctions + Math.max(-1, Math.min(id % cycle - persons, auctions - 1));
    }

    private long anyPerson(long id, Draws draws) {
        long people = lastPerson(id) + 1;
        long among = Math.min(people, active);
        return people - among + draws.below(among + LEAD);
    }

    private static long mixed(long bits) {
        bits = (bits ^ (bits >>> 30)) * 0xBF58476D1CE4E5B9L;
        bits = (bits ^ (bits >>> 27)) * 0x94D049BB133111EBL;
        return bits ^ (bits >>> 31);
    }

    /** Random numbers of one event. */
    private static final class Draws {
        private long next;

        Draws(long start) {
            next = start;
        }

        private long bits() {
            next += 0x9E3779B97F4A7C15L;
            return mixed(next);
        }

        long below(long bound) {
            return (bits() >>> 32) * bound >>> 32;
        }

        long price() {
            double share = (bits() >>> 11) * 0x1p-53;
            return (long) Math.rint(Math.pow(10.0, share * 6.0) * 100.0);
        }

        StringData oneOf(StringData[] values) {
            return values[(int) below(values.length)];
        }
    }

    /** Texts, as bytes that rows share. */
    private static final class Pools {
        final StringData[] first;
        final StringData[] last;
        final StringData[] email;
        final StringData[] card;
        final StringData[] city;
        final StringData[] state;
        final StringData[] item;
        final StringData[] description;
        final StringData[] channel;
        final StringData[] url;
        final StringData[] person;
        final StringData[] auction;
        final StringData[] bid;

        Pools(Path folder) throws IOException {
            first = read(folder, "first");
            last = read(folder, "last");
            email = read(folder, "email");
            card = read(folder, "card");
            city = read(folder, "city");
            state = read(folder, "state");
            item = read(folder, "item");
            description = read(folder, "description");
            channel = read(folder, "channel");
            url = read(folder, "url");
            person = read(folder, "person");
            auction = read(folder, "auction");
            bid = read(folder, "bid");
        }

        private static StringData[] read(Path folder, String name) throws IOException {
            return Files.readAllLines(folder.resolve(name)).stream()
                    .map(line -> StringData.fromBytes(line.getBytes(StandardCharsets.UTF_8)))
                    .toArray(StringData[]::new);
        }
    }
}
