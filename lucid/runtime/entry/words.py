"""What the native entry reads and writes: plans, fields of Python objects, functions of CPython."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lucid.codegen.llvm.builder import FunctionBuilder, Module, Val, const

IMPORTS = (
    "PyDict_Copy",
    "PyDict_DelItem",
    "PyDict_GetItemWithError",
    "PyDict_New",
    "PyDict_Next",
    "PyDict_SetItem",
    "PyDict_Size",
    "PyErr_Clear",
    "PyErr_ExceptionMatches",
    "PyErr_Fetch",
    "PyErr_Occurred",
    "PyErr_Restore",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyFloat_AsDouble",
    "PyFrame_GetBack",
    "PyFrame_GetCode",
    "PyFrame_GetLasti",
    "PyIter_Next",
    "PyList_Append",
    "PyList_AsTuple",
    "PyList_GetItem",
    "PyList_Insert",
    "PyList_New",
    "PyList_SetItem",
    "PyList_SetSlice",
    "PyList_Size",
    "PyLong_AsLongLong",
    "PyLong_FromLongLong",
    "PyNumber_Add",
    "PyObject_CallNoArgs",
    "PyObject_GetAttr",
    "PyObject_GetItem",
    "PyObject_Hash",
    "PyObject_RichCompareBool",
    "PyObject_SetAttr",
    "PyObject_SetItem",
    "PyObject_Size",
    "PyObject_Vectorcall",
    "PyObject_VectorcallDict",
    "PySequence_Concat",
    "PySet_Contains",
    "PySet_New",
    "PyThreadState_Get",
    "PyThreadState_GetID",
    "PyTuple_GetItem",
    "PyTuple_New",
    "PyTuple_SetItem",
    "PyTuple_Size",
    "PyType_IsSubtype",
    "Py_DecRef",
    "Py_GetRecursionLimit",
    "Py_IncRef",
    "Py_SetRecursionLimit",
)
MOST_ARGUMENTS = 512  # each is compared with each
ROOM = 500  # calls above the recursion limit, for what a step that has run leaves
# How an argument requires grad: not; or as a leaf or by its history, without hooks, and is no view.
NO_GRAD, LEAF, WITH_HISTORY = range(3)
# Of an array's flags: row-major and without gaps; that it can be written.
CONTIGUOUS, WRITEABLE = 1, 0x400


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in bytes of the fields that the code reads, from the address of the object."""

    references: int  # of any object: their number, an i32
    kind: int  # of any object: its class
    cell: int  # of a closure's cell: what is in it
    slice_start: int
    slice_stop: int
    slice_step: int
    array_data: int
    array_axes: int  # an i32
    array_shape: int
    array_strides: int
    array_dtype: int
    array_flags: int  # an i32
    array_base: int
    tensor_type: int
    tensor_storage: int
    tensor_array: int
    tensor_chain: int
    tensor_requires_grad: int
    tensor_grad_fn: int
    tensor_output_nr: int
    tensor_base: int
    tensor_view_chain: int
    tensor_epoch: int
    tensor_guard: int
    tensor_hooks: int
    tensor_counter: int
    tensor_spot: int
    tensor_accumulator: int
    tensor_gradient: int
    storage_array: int
    storage_root_type: int
    counter_now: int
    leaf_variable: int
    leaf_hooks: int  # of a leaf's node: those after it has accumulated
    node_ends: int
    node_sequence: int
    node_spot: int
    node_attributes: int
    node_saved: int
    node_led_to: int
    node_pre_hooks: int
    node_post_hooks: int
    node_tensor_hooks: int
    node_retained: int
    node_output_types: int
    node_derivative: int
    derivative_words: int
    derivative_attributes: int
    type_dtype: int
    type_size: int
    application_result_type: int
    application_step: int
    application_form: int
    saved_version: int
    saved_unpack_hook: int
    saved_tensor: int
    batch_words: int
    batch_was_left: int
    batch_was_seen: int
    batch_promises: int


class Word(IntEnum):
    """Words of a plan. Those named `..._AT` are addresses of tables, one record after another."""

    IS_BUSY = 0  # a call runs: another one, of another thread or inside of it, goes the long way
    CALLS_AT = 1  # counts the calls that came through here; then: which one Python looks at
    SLOW_PATH = 2
    ARGUMENT_COUNT = 3
    # axes, dtype, shape at, strides at, table place or 0, first and last byte, class, is it
    # written, how it requires grad
    ARGUMENTS_AT = 4
    EPOCH_AT = 5
    KNOWN_EPOCH_AT = 6  # the count for which the guards that move it hold
    CHECKED_AT = 7  # what must hold: words of `Checked`; of all calls, and when the epoch moved
    GATED_AT = 8
    THREAD = 9  # number of the thread that called last, and the attributes of its context
    THREAD_ITEMS = 10
    CONTEXT = 11
    DICT = 12  # "__dict__"
    LEVELS = 13  # "levels"
    MODES = 14  # of a thread: name, value
    MODES_AT = 15
    NUMBERS = 16  # how it is read, dict or callable, key, index, class, table place
    NUMBERS_AT = 17
    SPANS = 18  # first and last byte of what the step writes, sorted
    SPANS_AT = 19
    STATE_MASK = 20  # a hash table of the storages of the state
    STATE_AT = 21
    TENSOR = 22  # classes and constants
    ARRAY = 23
    FLOAT = 24
    NONE = 25
    FALSE = 26
    STEP = 27  # the native function, and its table
    TABLE = 28
    OUTPUTS_AT = 29  # the places of outputs in the table
    IS_LONG = 30
    AWAKE_AT = 31  # a word that is 0 as long as the threads don't run; or 0
    SPARES = 32  # a list of batches; or 0: there are no gradients
    LATEST = 33  # a list with the latest batch in it
    RESULTS = 34  # number of the output, callable, arguments at, their number
    RESULTS_AT = 35
    ARRAYS_AT = 36  # the new arrays, among the values
    RAISE = 37  # a callable that raises what the step found
    COUNTERS = 38  # place, increment
    COUNTERS_AT = 39
    # A constant, one of the values that are made, a tuple of the new arrays, or what a callable
    # makes of the values; and which one.
    RESULT = 40
    RESULT_AT = 41
    # Arrays that become tensors: which one, templates of its storage, counter and tensor. A
    # template: function, class, empty tuple, template, number of words, words at.
    TENSORS = 42
    TENSORS_AT = 43
    VALUES_AT = 44  # the arguments, then what is made: the new arrays, and parts
    HELD_AT = 45  # the arrays of the arguments; kept alive while others may run
    FREE = 46  # a list of the buffers and tables that no call uses; that of the plan, and its words
    BUFFERS = 47
    BUFFERS_AT = 48
    IS_OPEN_AT = 49  # a word: whether native code may call the step now
    # The lock on state that threads share, with its arguments; 0: nothing is shared.
    ACQUIRE = 50
    ACQUIRE_AT = 51
    RELEASE = 52
    CLAIMS = 53  # a list of what threads have to themselves
    CLAIM = 54  # callables that exchange the lock for a claim, and back
    UNCLAIM = 55
    TRUE = 56
    GIVEN_COUNT = 57  # how many of the arguments the caller gives; the others are in places
    PLACES = 58  # kind, container, key, size of the tuple that is there or 0, index in it
    PLACES_AT = 59
    GATHERED_AT = 60  # the arguments with those from places
    TUPLE = 61
    INTERRUPT_AT = 62  # an exception that is to be raised after the call, in three words
    GATHER = 63  # a callable that finds them all in what the caller gives; or 0
    ASKS_USER = 64  # whether a question calls the user's code: of a call that fits only
    STATE_SPANS = 65  # first and last byte of the state, sorted
    STATE_SPANS_AT = 66
    FOUND_COUNTERS = 67  # argument, increment
    FOUND_COUNTERS_AT = 68
    FILL = 69  # a callable that makes a spare batch of gradients, where none is left
    # How many sizes the call says, of a program whose sizes are open; where each of them is, in the
    # table or as an axis of an argument (`of_axis`), then room for what they are.
    SIZES = 70
    SIZES_AT = 71
    SIZED = 72  # those of the call that runs, as a tuple
    WORDS_AT = 73  # the place in the table where the address of the words goes
    BEGIN = 74  # a callable that gets ready for sizes that are found, when numbers are there; or 0
    FILLINGS = 75  # addresses of what fills in words for sizes
    FILLINGS_AT = 76
    EXCEPTION = 77  # Python's class: the long way comes to these again, but to no interrupt
    HISTORY_AT = 78  # words of `CallHistory`, where results have one; or 0
    # What is made of the new tensors, one after the other: kind, constant, keys, callable or words
    # of `results.View`, count of values, their numbers at, room for them.
    PARTS = 79
    PARTS_AT = 80
    RECORDED_AT = 81  # words of `Recorded`, where the first argument is a call's record; or 0


class Checked(IntEnum):
    """Words of the tables of what must hold: numbers of records, and where the first one is."""

    FIELDS = 0  # address of a word, and what must be there
    FIELDS_AT = 1
    DICTS = 2  # dict, key, value or 0: there is none
    DICTS_AT = 3
    CONTENTS = 4  # dict, number of its entries, keys and values at; then room for a walk
    CONTENTS_AT = 5
    ITEMS = 6  # container, key, value
    ITEMS_AT = 7
    LENGTHS = 8  # container, length
    LENGTHS_AT = 9
    QUESTIONS = 10  # callable, answer
    QUESTIONS_AT = 11


class CallHistory(IntEnum):
    """Words for the history of results: a call's record, and a node before it for each layer.

    Sources are told by where they are, a number there, and the field to take of it, or 0: itself.
    """

    RECORD = 0  # a template
    # Template of its node; sources of where gradients go, values that are outputs and which ones;
    # where the node has the first, if there are some; for each output one of these values.
    LAYERS = 1
    LAYERS_AT = 2
    NODES_AT = 3  # room for the nodes
    SPOT = 4  # callable: where the user's code stands
    SEQUENCE = 5  # an iterator over the numbers of nodes
    NUMBERS = 6  # callable: the Python numbers that the call keeps; or 0: there are none
    EMPTY = 7  # the empty tuple
    LEAVES = 8  # tensors that must be leaves still
    LEAVES_AT = 9
    COUNTERS = 10  # sources: of version counters, of what is kept, and of tensors that are shown
    COUNTERS_AT = 11
    KEPT = 12
    KEPT_AT = 13
    SHOWN = 14
    SHOWN_AT = 15
    SIZES = 16  # whether each call has sizes of its own, which are kept
    # Offsets of the fields of the record, then of a node.
    SPOT_OF_RECORD = 17
    FREED = 18
    CONTEXTS = 19
    NUMBERS_OF_RECORD = 20
    COUNTERS_OF_RECORD = 21
    VERSIONS = 22
    KEPT_OF_RECORD = 23
    SHOWN_OF_RECORD = 24
    STORAGES = 25
    SIZES_OF_RECORD = 26
    RECORD_OF_NODE = 27
    SEQUENCE_OF_NODE = 28
    SPOT_OF_NODE = 29


class Recorded(IntEnum):
    """Words for what a call has kept, which its record gives in the place of arguments.

    Attributes:
        FREED: offsets of fields of the record, as are the following ones.
        CHECKED: numbers of the version counters that are to be where they were.
        ROOM_AT: a place for all arguments.
    """

    FREED = 0
    COUNTERS = 1
    VERSIONS = 2
    KEPT = 3
    SHOWN = 4
    STORAGES = 5
    CHECKED = 6
    CHECKED_AT = 7
    ROOM_AT = 8


# Words of a call's buffers: whether all inputs are in its table, whether we have written there, and
# the bytes of its memory for temporaries.
IS_READY, IS_TOUCHED, ARENA_BYTES = range(3)
SIZED_WORDS = 6  # of what comes of sizes; see `sizes.Filling`
MULTIPLY, ADD, QUOTIENT, LESS, EQUAL = range(5)  # what a step does
MOST_AXES = 64  # of an array
NUMBER_IN_DICT, NUMBER_IN_TUPLE, NUMBER_CALLED = range(3)
CONSTANT, MADE, ALL, OTHER = range(4)
A_CONSTANT, A_TUPLE, A_DICT, A_VIEW, CALLED_ON = range(5)  # what a part is
IN_DICT, IN_LIST, IN_CELL = range(3)
# Where a source is: it is the number itself; it has that number there; what a callable makes; where
# the gradient of an argument goes, and that of an output, which is the field, of a layer before.
HERE, OF_ARGUMENT, OF_MADE, CALLED, END_OF_ARGUMENT, END_OF_LAYER = range(6)
RAISED = 1 << 40  # in place of a code of the step: an exception is set


def of_axis(argument: int, axis: int) -> int:
    """A word, less than any address, for the size of an argument's axis."""
    return argument * MOST_AXES + axis


class EntryBuilder(FunctionBuilder):
    """Functions on words; an address is a word too."""

    def word(self, base: Val, number: int | Val = 0) -> Val:
        return self.load("i64", self.at("i64", self._pointer(base), number))

    def set_word(self, base: Val, number: int | Val, value: Val | int) -> None:
        value = value if isinstance(value, Val) else const("i64", value)
        self.store(value, self.at("i64", self._pointer(base), number))

    def _pointer(self, address: Val) -> Val:
        return self.cast("inttoptr", address, "ptr")

    def field(self, place: Val, offset: int, type_: str = "i64") -> Val:
        return self.load(type_, self._pointer(self.add(place, offset)))

    def set_field(self, place: Val, offset: int, value: Val) -> None:
        self.store(value, self._pointer(self.add(place, offset)))

    def exchange(self, place: Val, offset: int, value: Val) -> None:
        """Put a value that is ours in the place of one that a template has left."""
        before = self.field(place, offset)
        self.set_field(place, offset, value)
        self.drop(before)

    def api(self, name: str, *args: Val | int) -> Val:
        """Call a function of CPython; an int and a word are passed alike."""
        given = [arg if isinstance(arg, Val) else const("i64", arg) for arg in args]
        return self.call(name, "i64", *given)

    def own(self, value: Val) -> None:
        self.api("Py_IncRef", value)

    def drop(self, value: Val) -> None:
        self.api("Py_DecRef", value)

    def answer(self, value: Val | int) -> None:
        self.ret(value if isinstance(value, Val) else const("i64", value))

    def require(self, condition: Val) -> None:
        """Return 0 unless it holds."""
        with self.if_(self.not_(condition)):
            self.answer(0)

    def require_found(self, value: Val) -> None:
        """Return 0, and forget CPython's exception, for a null."""
        with self.if_(self.eq(value, 0)):
            self.api("PyErr_Clear")
            self.answer(0)

    def require_made(self, value: Val) -> None:
        """Return 0 for a null; CPython's exception stays, for `_go_long_way_unless`."""
        self.require(self.ne(value, 0))

    def require_or_drop(self, value: Val, made: Val) -> None:
        """Return 0 for a null, and drop what was made before."""
        with self.if_(self.eq(value, 0)):
            self.drop(made)
            self.answer(0)

    def require_size(self, container: Val, size: Val) -> None:
        """Return 0 unless the container has so many items."""
        found = self.api("PyObject_Size", container)
        with self.if_(self.ne(found, size)):
            self.api("PyErr_Clear")  # it may have none at all
            self.answer(0)

    def record(self, table: Val, number: Val, size: int) -> Val:
        return self.add(table, self.mul(number, 8 * size))


def entry_function(
    module: Module, name: str, *parameters: str, internal: bool = True
) -> EntryBuilder:
    """A function of words; its answer is one too."""
    return EntryBuilder(module, name, [("i64", p) for p in parameters], "i64", internal=internal)


class records:  # noqa: N801 - used like the builder's own `loop`
    """For each record of a table of the plan: its address."""

    def __init__(self, b: EntryBuilder, plan: Val, count: int, size: int) -> None:
        self._b = b
        self._size = size
        self._table = b.word(plan, count + 1)
        self._loop = b.loop(0, b.word(plan, count))

    def __enter__(self) -> Val:
        return self._b.record(self._table, self._loop.__enter__().index, self._size)

    def __exit__(self, *error: object) -> None:
        self._loop.__exit__(None, None, None)
