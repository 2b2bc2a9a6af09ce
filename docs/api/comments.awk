# Shows Doxygen the headers' comments: a file's first ones are about the file, those above a declaration about it, and
# those behind one about that. Doxygen reads only comments that begin with three slashes.
/\/\/ / { gsub(/\\/, "\\\\&") }
FNR == 1 && /^\/\/ / { print "/// \\file"; print "///"; in_head = 1 }
in_head && !/^\/\// { in_head = 0 }
/^ *\/\/( |$)/ {
  if (after && !in_head && match($0, /^ +\/\//) && RLENGTH == column) { sub(/\/\//, "///<"); print; next }
  after = 0
  sub(/\/\//, "///")
  print
  next
}
{
  after = 0
  if ($0 !~ /^ *(#|namespace|using namespace|})/ && match($0, /[;,{)] +\/\/ /)) {
    column = index($0, "// ") + 1
    after = 1
    sub(/\/\/ /, "///< ")
  }
  print
}
