"""Numba's compiler without what kernels have no use for (docs/benchmarks.md has the time that takes).

This leans on private parts of Numba; it was tried with 0.60 and 0.68.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

# Numba's names of what looks for closures, comprehensions, expressions of whole arrays, branches that a type decides,
# constants to be raised or subscribed by, and parts of NumPy that ask to be inlined. So a kernel has no comprehension,
# its arguments no default of None, and what it asserts has a message.
UNUSED_PASSES = (
    "InlineClosureLikes",
    "RewriteSemanticConstants",
    "DeadBranchPrune",
    "GenericRewrites",
    "InlineOverloads",
    "NopythonRewrites",
)


class KernelCompiler(Compiler):
    """Leaves passes out: each goes through all of the code, and some have Numba analyse it once more."""

    def define_pipelines(self) -> Any:
        pipelines: Any = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [entry for entry in pipeline.passes if entry[0].__name__ not in UNUSED_PASSES]
            pipeline.finalize()
        return pipelines

    def compile_extra(self, function: Any) -> Any:
        result: Any = super().compile_extra(function)
        for environment in result._find_referenced_environments():  # by which its helpers, too, raise and print
            result.library.codegen.set_env(environment.env_name, environment)
        return result


class HelperCompiler(KernelCompiler):
    """Stops before machine code, for a helper is run as part of the kernels that it is linked with."""

    def compile_extra(self, function: Any) -> Any:
        context = self.state.targetctx
        self.state.flags.no_compile = True
        self.state.library = _ToBeLinked(context.codegen(), function.__qualname__)
        result: Any = Compiler.compile_extra(self, function)
        result = result._replace(entry_point=object())  # in place of what Python would call, by which Numba finds it
        context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


class _ToBeLinked(JITCodeLibrary):
    """The code of a helper. It is optimised, though kernels will be as well: else theirs is a few percent slower."""

    def _finalize_final_module(self) -> None:
        self._finalized = True
