"""Elements of streams, and their codecs.

- `elements`: the classes of elements. `element_codec`: elements and batches as bytes.
- `value_codec`, `value_encoder`: single values as bytes, of the kinds in `leaf_types` and `record_classes`.
  `stable_names`: Penstock's own classes in data.
- `arrow_types`, `arrow_values`, `own_types`, `row_columns`: Python values and Arrow columns.
- `column_key`: keys by columns.

Later versions read these formats: change a format only together with its version number.
"""
