# Writes what the command tells of itself, laid out as it is installed: manual pages, and completions of three shells.
# cmake -D ATTN=build/attn -D OUT=build/share -P cmake/documents.cmake
function(write_told file)
  execute_process(COMMAND ${ATTN} ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  file(WRITE ${OUT}/${file} "${text}")
endfunction()

file(REMOVE_RECURSE ${OUT})
write_told(bash-completion/completions/attn completions bash)
write_told(zsh/_attn completions zsh)
write_told(fish/vendor_completions.d/attn.fish completions fish)
write_told(man/man1/attn.1 help --man)
file(READ ${OUT}/man/man1/attn.1 page)
string(REGEX MATCHALL "attn\\\\-[a-z]+\" \\(1\\)" verbs "${page}")  # its list of the other pages
foreach(verb IN LISTS verbs)
  string(REGEX REPLACE "attn\\\\-([a-z]+).*" "\\1" verb "${verb}")
  write_told(man/man1/attn-${verb}.1 help ${verb} --man)
endforeach()
