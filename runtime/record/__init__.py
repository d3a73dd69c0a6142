"""Elements of streams, and their codecs.

Elements (`elements`), the codec of values and batches (`value_codec`, `batch_codec`, `element_codec`), and
the conversions between Python values and Arrow. Formats here are read by later versions: change them only
with a new version. Imports only `errors`.
"""
