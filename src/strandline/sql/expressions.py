"""What can be said of an expression without Spark. Each function has its own module; this one gathers them."""

from strandline.sql.assignments import Assignment, assign
from strandline.sql.literals import Constant, NotConstant, literal
from strandline.sql.predicates import Predicate, predicate
from strandline.sql.ranges import Allowed, Constraints, Range, key_ranges
from strandline.sql.syntax import Expression, parse_expression

__all__ = [
    "Allowed",
    "Assignment",
    "Constant",
    "Constraints",
    "Expression",
    "NotConstant",
    "Predicate",
    "Range",
    "assign",
    "key_ranges",
    "literal",
    "parse_expression",
    "predicate",
]
