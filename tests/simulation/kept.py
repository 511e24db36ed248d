"""Seeds of faults that are mended: each run fails where its mend is taken out."""

from __future__ import annotations

from typing import Final

KEPT: Final = {
    506: "a slot was handed over while a pull of it was in doubt, and its new owner counted",
    548: "a worker stopped while a pull of it was in doubt, and the slot's new owner counted",
    2036: "under marks a message whose user had not acknowledged it yet was marked at a stop's end",
    6605: "a message that was settled first was told as lost, where its handler ended in a renewal",
    63600: "a retry in place whose slot was lost became a delayed one, behind the next of its key",
}
