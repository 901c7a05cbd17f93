"""Embedding tables on disk: values, row ids and row metadata; read, write and join by id."""

from congruence.tables.honours import honours as honours
from congruence.tables.join import Joined as Joined
from congruence.tables.join import finite_table as finite_table
from congruence.tables.join import join_tables as join_tables
from congruence.tables.names import unique_names as unique_names
from congruence.tables.parts import expanded as expanded
from congruence.tables.parts import read_parts as read_parts
from congruence.tables.parts import stream_parts as stream_parts
from congruence.tables.read import SUFFIXES as SUFFIXES
from congruence.tables.read import read_table as read_table
from congruence.tables.row_columns import RowColumns as RowColumns
from congruence.tables.row_columns import read_row_columns as read_row_columns
from congruence.tables.stream import Stream as Stream
from congruence.tables.stream import slices as slices
from congruence.tables.stream import stream_table as stream_table
from congruence.tables.stream import write_stream as write_stream
from congruence.tables.table import Table as Table
from congruence.tables.write import check_table_path as check_table_path
from congruence.tables.write import write_table as write_table
