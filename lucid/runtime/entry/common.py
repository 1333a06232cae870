"""What machine code of eager mode shares: the words of its plan, and arrays as they are to be."""

from __future__ import annotations

from enum import IntEnum

from lucid.codegen.llvm.builder import Module
from lucid.runtime.entry.words import CONTIGUOUS, Layout, entry_function


class Common(IntEnum):
    """Words that all ops and walks share."""

    NONE = 0
    TRUE = 1
    FALSE = 2
    MISSED = 3  # the answer that asks for a record
    SLOT = 4  # where that belongs
    TABLE_AT = 5  # addresses of records, or 0
    TUPLE = 6
    ARRAY = 7
    TENSOR = 8
    CORE = 9  # what the classes of tensors inherit
    THREAD = 10  # number of the thread that called last, and the attributes of its context
    THREAD_ITEMS = 11
    CONTEXT = 12
    DICT = 13  # "__dict__"
    GRAD_ENABLED = 14  # names
    ABSENT_AT = 15  # names of what must be None in the context, then of what must be empty
    ABSENT = 16
    EMPTY_AT = 17
    EMPTY = 18
    CONTIGUOUS = 19  # callable: an array as it is to be, of what an op gave
    SPOT = 20  # callable: where the user's code stands
    SEQUENCE = 21  # iterator: the numbers of nodes
    REPEATED = 22  # errors that Python raises again, with operands and lines
    EMPTY_TUPLE = 23
    NUMBERS_AT = 24  # ints: 0, 1, 2 …; before them -1
    OPERAND = 25  # templates of a saved operand and a saved result
    RESULT = 26
    NODE = 27  # the class of ops' nodes
    ACCUMULATOR = 28  # callable: the node that accumulates into a leaf
    ADD = 29  # callable: the sum of two arrays, in the memory of a third one
    FRAME = 30  # callable: the frame of so many calls before
    FILENAME = 31  # "co_filename"
    PASSED = 32  # sets of files: those of which frames are passed over, and others
    USERS = 33
    LEFT = 34  # the answer to a call of a public function that is Python's
    KEY_AT = 35  # words of `calls.Key`
    CALLS_AT = 36  # a table of records, and behind it of hashes that came once
    APPLY_OP = 37  # callables: what applies an op in Python, and what writes a tensor
    WRITE = 38
    LENT = 39  # "lent"
    DEFAULTS = 40  # what has the default dtype, and its name there
    FLOATING = 41
    INT = 42
    FLOAT = 43
    LIST = 44
    SLICE = 45
    IDENTICAL = 46  # classes whose objects are told apart by identity
    IDENTICAL_AT = 47
    ALL = 48  # `...`
    TIMES = 49  # that a call comes again before it is recorded
    SIZE = 50  # a class of tuples
    APPLICATION = 51  # callable: what is known of an op on operands that there is no record of
    DERIVATIVE = 52  # the class of what a walk needs to know of an op
    UNIFORM_AT = 53  # addresses of records of ops on elements, or 0
    UNIFORM_SLOT = 54  # where that of the latest such op belongs
    UNWATCHED_AT = 55  # names of what else must be None where a program runs
    LEAF = 56  # the class of leaves' nodes
    ACQUIRE = 57  # callables: take the lock of what threads share, and give it back
    RELEASE = 58
    HELD = 59  # a list of what threads have claimed
    COPY = 60  # callable: a row-major copy of an array
    TEMPLATES = 61  # callable: the words of a tensor's templates, by its type


def define_right_array(module: Module, layout: Layout) -> None:
    """What a function has given, as a row-major array, unless it is a view; 0 stays 0."""
    with entry_function(module, "right_array", "plan", "array", "is_view") as b:
        plan, array, is_view = b.args
        with b.if_(b.eq(array, 0)):
            b.answer(0)
        with b.if_(b.eq(b.field(array, layout.kind), b.word(plan, Common.ARRAY))):
            flags = b.field(array, layout.array_flags, "i32")
            is_right = b.ne(b.and_(flags, CONTIGUOUS), 0)
            with b.if_(b.or_(is_right, b.ne(is_view, 0))):
                b.answer(array)
        given = b.cast("ptrtoint", b.alloca("i64"), "i64")
        b.set_word(given, 0, array)
        right = b.api("PyObject_Vectorcall", b.word(plan, Common.CONTIGUOUS), given, 1, 0)
        b.drop(array)
        b.answer(right)
