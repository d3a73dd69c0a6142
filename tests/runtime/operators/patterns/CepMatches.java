import java.io.*;
import java.lang.reflect.*;
import java.nio.file.*;
import java.util.*;
import org.apache.flink.api.common.state.*;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.cep.configuration.SharedBufferCacheConfig;
import org.apache.flink.cep.nfa.*;
import org.apache.flink.cep.nfa.aftermatch.AfterMatchSkipStrategy;
import org.apache.flink.cep.nfa.compiler.NFACompiler;
import org.apache.flink.cep.nfa.sharedbuffer.*;
import org.apache.flink.cep.pattern.Pattern;
import org.apache.flink.cep.pattern.conditions.SimpleCondition;
import org.apache.flink.cep.time.TimerService;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.*;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.*;

/**
 * Finds the matches of patterns with the classes of Flink's CEP; `make_cep_matches.py` calls it.
 *
 * Keyed state is kept in maps. Arguments: a JSON file with patterns and streams, and one for the matches.
 */
public class CepMatches {
    static class Starts extends SimpleCondition<String> {
        final String letters;
        Starts(String letters) { this.letters = letters; }
        public boolean filter(String value) { return letters.indexOf(value.charAt(0)) >= 0; }
    }
    static Pattern<String, String> build(JsonNode steps) {
        Pattern<String, String> pattern = null;
        for (JsonNode step : steps) {
            String call = step.get("call").asText();
            boolean group = step.has("members");
            Pattern<String, String> inner = group ? build(step.get("members")) : null;
            String name = step.get("name").asText();
            if (pattern == null) pattern = group ? (Pattern) Pattern.begin(inner) : Pattern.<String>begin(name);
            else if (call.equals("next")) pattern = group ? (Pattern) pattern.next(inner) : pattern.next(name);
            else if (call.equals("followed_by")) pattern = group ? (Pattern) pattern.followedBy(inner) : pattern.followedBy(name);
            else pattern = group ? (Pattern) pattern.followedByAny(inner) : pattern.followedByAny(name);
            if (!group) pattern = pattern.where(new Starts(step.get("letters").asText()));
            JsonNode times = step.get("times");
            if (!times.isNull()) {
                int from = times.get(0).asInt();
                if (times.get(1).isNull()) pattern = from == 1 ? pattern.oneOrMore() : pattern.timesOrMore(from);
                else pattern = from == times.get(1).asInt() ? pattern.times(from) : pattern.times(from, times.get(1).asInt());
                String how = step.get("inner").asText();
                if (how.equals("consecutive")) pattern = pattern.consecutive();
                if (how.equals("combinations")) pattern = pattern.allowCombinations();
            }
        }
        return pattern;
    }
    static Object value(Object initial) {
        Object[] held = {initial};
        return Proxy.newProxyInstance(CepMatches.class.getClassLoader(), new Class<?>[]{ValueState.class}, (p, m, a) -> {
            switch (m.getName()) {
                case "value": return held[0];
                case "update": held[0] = a[0]; return null;
                case "clear": held[0] = null; return null;
            }
            throw new UnsupportedOperationException(m.getName());
        });
    }
    static Object map() {
        Map<Object, Object> held = new HashMap<>();
        return Proxy.newProxyInstance(CepMatches.class.getClassLoader(), new Class<?>[]{MapState.class}, (p, m, a) -> {
            switch (m.getName()) {
                case "get": return held.get(a[0]);
                case "put": held.put(a[0], a[1]); return null;
                case "putAll": held.putAll((Map) a[0]); return null;
                case "remove": held.remove(a[0]); return null;
                case "contains": return held.containsKey(a[0]);
                case "entries": return held.entrySet();
                case "keys": return held.keySet();
                case "values": return held.values();
                case "iterator": return held.entrySet().iterator();
                case "isEmpty": return held.isEmpty();
                case "clear": held.clear(); return null;
            }
            throw new UnsupportedOperationException(m.getName());
        });
    }
    public static void main(String[] args) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        ArrayNode results = mapper.createArrayNode();
        for (JsonNode test : mapper.readTree(new File(args[0]))) {
            ObjectNode result = results.addObject();
            NFACompiler.NFAFactory<String> factory = NFACompiler.compileFactory(build(test.get("steps")), false);
            ArrayNode streams = result.putArray("matches");
            for (JsonNode stream : test.get("streams")) {
                Map<String, Object> states = new HashMap<>();
                KeyedStateStore store = (KeyedStateStore) Proxy.newProxyInstance(CepMatches.class.getClassLoader(), new Class<?>[]{KeyedStateStore.class}, (p, m, a) -> {
                    String name = m.getName() + ((StateDescriptor<?, ?>) a[0]).getName();
                    return states.computeIfAbsent(name, k -> m.getName().equals("getMapState") ? map() : value(null));
                });
                NFA<String> nfa = factory.createNFA();
                SharedBuffer<String> buffer = new SharedBuffer<>(store, StringSerializer.INSTANCE, new SharedBufferCacheConfig());
                NFAState state = nfa.createInitialNFAState();
                TimerService timers = (TimerService) Proxy.newProxyInstance(CepMatches.class.getClassLoader(), new Class<?>[]{TimerService.class}, (p, m, a) -> 0L);
                ArrayNode found = streams.addArray();
                String letters = stream.asText();
                for (int at = 0; at < letters.length(); at++) {
                    try (SharedBufferAccessor<String> accessor = buffer.getAccessor()) {
                        nfa.advanceTime(accessor, state, at * 1000L, AfterMatchSkipStrategy.noSkip());
                        for (Map<String, List<String>> match : nfa.process(accessor, state, "" + letters.charAt(at) + at, at * 1000L, AfterMatchSkipStrategy.noSkip(), timers)) {
                            ObjectNode one = found.addObject();
                            for (Map.Entry<String, List<String>> entry : match.entrySet()) {
                                ArrayNode records = one.putArray(entry.getKey());
                                for (String record : entry.getValue()) records.add(record);
                            }
                        }
                    }
                }
            }
        }
        mapper.writeValue(new File(args[1]), results); System.exit(0);
    }
}
