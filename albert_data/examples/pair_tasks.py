"""The sentence tasks: how the two segments of a row are chosen, and what the label of a row says.

"sop": sentence order prediction (ALBERT, section 3.1). "nsp": next sentence prediction (BERT, section 3.1). "order3":
both at once, in three labels (StructBERT, section 2.2). "none": rows of one segment (RoBERTa's DOC-SENTENCES, section
4.2). A row without a segment B has the label -1 in every task.
"""

from __future__ import annotations

from dataclasses import dataclass

NO_LABEL = -1  # kernels write it
IN_ORDER, SWAPPED, RANDOM_B = "in order", "swapped", "random"
_SOP_TAG, _NSP_TAG = "sentence-order-prediction", "next-sentence-prediction"
_MEANINGS = {
    IN_ORDER: "in order",
    SWAPPED: "swapped: A followed B in the document",
    RANDOM_B: "random: B is of another document",
}


@dataclass(frozen=True, kw_only=True)
class PairTask:
    """One of PAIR_TASKS.

    title: the name of its loss, in reports; empty if it has none. tags: of data sets on the Hugging Face Hub.
    orders: how the segments stand, for each label from 0 on, each as likely as the others: IN_ORDER, SWAPPED, or
    RANDOM_B: B is of another document.
    """

    name: str
    title: str
    tags: tuple[str, ...]
    orders: tuple[str, ...]

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """What a manifest says of the labels; None for those that manifests have always had, and for none at all."""
        return self.orders if self.name not in ("sop", "none") else None

    @property
    def has_random(self) -> bool:
        return RANDOM_B in self.orders

    def describe(self, label: int) -> str:
        """What a label says of a row, in words."""
        if label == NO_LABEL:
            return "no segment B"
        return _MEANINGS[self.orders[label]] if 0 <= label < len(self.orders) else f"sop_label {label}"

    def label_of(self, order: str) -> int:
        """The label of an order; -2, which no row has, if the task lacks it."""
        return self.orders.index(order) if order in self.orders else -2


PAIR_TASKS = {
    task.name: task
    for task in (
        PairTask(name="sop", title="SOP", tags=(_SOP_TAG,), orders=(IN_ORDER, SWAPPED)),
        PairTask(name="nsp", title="NSP", tags=(_NSP_TAG,), orders=(IN_ORDER, RANDOM_B)),
        PairTask(name="order3", title="order", tags=(_SOP_TAG, _NSP_TAG), orders=(IN_ORDER, SWAPPED, RANDOM_B)),
        PairTask(name="none", title="", tags=(), orders=()),
    )
}
