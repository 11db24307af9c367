// RUN: split-file %s %t
// RUN: cd %t && bash write.sh exp 93 > fits.mlir && bash write.sh exp 94 > large.mlir
// RUN: sardonyx-opt %t/fits.mlir --pass-pipeline='builtin.module(inline-maps,fuse-epilogues,fuse-reductions,fuse-siblings)' \
// RUN:   | FileCheck %s --check-prefix=FITS
// RUN: sardonyx-opt %t/large.mlir --pass-pipeline='builtin.module(inline-maps,fuse-epilogues,fuse-reductions,fuse-siblings)' \
// RUN:   | FileCheck %s --check-prefix=LARGE
// RUN: cd %t && bash write.sh sin 11 > fits.mlir && bash write.sh sin 14 > large.mlir
// RUN: sardonyx-opt %t/fits.mlir --pass-pipeline='builtin.module(inline-maps,fuse-epilogues,fuse-reductions,fuse-siblings)' \
// RUN:   | FileCheck %s --check-prefix=FITS
// RUN: sardonyx-opt %t/large.mlir --pass-pipeline='builtin.module(inline-maps,fuse-epilogues,fuse-reductions,fuse-siblings)' \
// RUN:   | FileCheck %s --check-prefix=LARGE

// More than 96 statements in one kernel would spill more than a separate kernel moves. Each function has a kernel of 3
// statements or fewer and one of N + 1 or more: at N = 93 each pair has 96, at N = 94 it has 97. A sine, which is computed in
// double precision, counts as eight.

// FITS-LABEL: func.func @inline
// FITS-COUNT-1: = flow.kernel
// FITS-NOT: = flow.kernel
// FITS-LABEL: func.func @epilogue
// FITS-COUNT-1: = flow.kernel
// FITS-NOT: = flow.kernel
// FITS-LABEL: func.func @reduction
// FITS-COUNT-1: = flow.kernel
// FITS-NOT: = flow.kernel
// FITS-LABEL: func.func @siblings
// FITS-COUNT-1: = flow.kernel
// FITS-NOT: = flow.kernel
// FITS: return

// LARGE-LABEL: func.func @inline
// LARGE-COUNT-2: = flow.kernel
// LARGE-LABEL: func.func @epilogue
// LARGE-COUNT-2: = flow.kernel
// LARGE-LABEL: func.func @reduction
// LARGE-COUNT-2: = flow.kernel
// LARGE-LABEL: func.func @siblings
// LARGE-COUNT-2: = flow.kernel

//--- write.sh
function=$1
shift
long() { for i in $(seq "$1"); do echo "    %v$i = flow.apply \"$function\"(%v$((i - 1))) : (f32) -> f32"; done; }
echo '!r = !flow.container<[b], f32, row_major>'
echo '!x = !flow.container<[b, s], f32, row_major>'

echo 'func.func @inline(%x: !r, %y: !r) -> !r {'
echo '  %0 = flow.kernel outer ["b"] inner [] (%x, %y) : (!r, !r) -> !r {'
echo '    %1 = flow.load 0 ["%0"] : f32'
echo '    %2 = flow.load 1 ["%0"] : f32'
echo '    %3 = flow.apply "add"(%1, %2) : (f32, f32) -> f32'
echo '    flow.store %3 to 0 ["%0"] : f32'
echo '  }'
echo '  %4 = flow.kernel outer ["b"] inner [] (%0) : (!r) -> !r {'
echo '    %v0 = flow.load 0 ["%0"] : f32'
long $(($1 - 1))
echo "    flow.store %v$(($1 - 1)) to 0 [\"%0\"] : f32"
echo '  }'
echo '  return %4 : !r'
echo '}'

echo 'func.func @epilogue(%x: !x) -> !r {'
echo '  %0 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> !r {'
echo '    %1 = flow.load 0 ["%0", "%1"] : f32'
echo '    %2 = flow.reduce "add" %1 : f32 -> f32'
echo '    flow.store %2 to 0 ["%0"] : f32'
echo '  }'
echo '  %4 = flow.kernel outer ["b"] inner [] (%0) : (!r) -> !r {'
echo '    %v0 = flow.load 0 ["%0"] : f32'
long "$1"
echo "    flow.store %v$1 to 0 [\"%0\"] : f32"
echo '  }'
echo '  return %4 : !r'
echo '}'

echo 'func.func @reduction(%x: !x) -> !x {'
echo '  %0 = flow.kernel outer ["b"] inner ["s"] (%x) : (!x) -> !r {'
echo '    %1 = flow.load 0 ["%0", "%1"] : f32'
echo '    %2 = flow.reduce "add" %1 : f32 -> f32'
echo '    flow.store %2 to 0 ["%0"] : f32'
echo '  }'
echo '  %4 = flow.kernel outer ["b", "s"] inner [] (%x, %0) : (!x, !r) -> !x {'
echo '    %2 = flow.load 1 ["%0"] : f32'
echo '    %3 = flow.load 0 ["%0", "%1"] : f32'
echo '    %v0 = flow.apply "sub"(%3, %2) : (f32, f32) -> f32'
long $(($1 - 2))
echo "    flow.store %v$(($1 - 2)) to 0 [\"%0\", \"%1\"] : f32"
echo '  }'
echo '  return %4 : !x'
echo '}'

echo 'func.func @siblings(%x: !r) -> (!r, !r) {'
echo '  %0 = flow.kernel outer ["b"] inner [] (%x) : (!r) -> !r {'
echo '    %1 = flow.load 0 ["%0"] : f32'
echo '    %2 = flow.apply "neg"(%1) : (f32) -> f32'
echo '    flow.store %2 to 0 ["%0"] : f32'
echo '  }'
echo '  %4 = flow.kernel outer ["b"] inner [] (%x) : (!r) -> !r {'
echo '    %v0 = flow.load 0 ["%0"] : f32'
long "$1"
echo "    flow.store %v$1 to 0 [\"%0\"] : f32"
echo '  }'
echo '  return %0, %4 : !r, !r'
echo '}'
