"""Public chess data sets in their own formats, read row by row."""

from rlvr_chess.rows.read import DataSet, Material, read_data, read_rows
from rlvr_chess.rows.row import GameLine, Row, Unsupported

__all__ = ["DataSet", "GameLine", "Material", "Row", "Unsupported", "read_data", "read_rows"]
