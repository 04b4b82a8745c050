"""The mathematics of EntroPath: arrays in, arrays out.

Nothing here knows of AnnData or scanpy.
"""
