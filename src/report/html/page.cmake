# The report's page travels inside the library: its files as string literals, and the hashes by which the page's
# Content-Security-Policy lets exactly this script and this style in.
set(folder ${CMAKE_CURRENT_LIST_DIR}/page)
# Lower parts first: what data, drawing and selection are made of, then the panels, then the start.
set(scripts data colour state matrix export random forward arithmetic header overview flow stage lines heads space softmax masks dropout
            split checks snippets main)
list(TRANSFORM scripts PREPEND ${folder}/)
list(TRANSFORM scripts APPEND .js)
# A page that computes has one more, and beside it the library for its worker (src/web).
set(web ${CMAKE_CURRENT_LIST_DIR}/../../web)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/page.html ${folder}/style.css ${scripts}
             ${folder}/live.js ${web}/library.js ${web}/worker.js ${web}/attn.wasm.gz)

file(READ ${folder}/page.html ATTN_PAGE_HTML)
file(READ ${folder}/style.css ATTN_PAGE_STYLE)
string(SHA256 ATTN_PAGE_STYLE_SHA256 "${ATTN_PAGE_STYLE}")
set(whole "")
set(ATTN_PAGE_SCRIPTS "")
foreach(script IN LISTS scripts)
  file(READ ${script} text)
  string(APPEND whole "${text}")
  string(APPEND ATTN_PAGE_SCRIPTS "R\"~page~(${text})~page~\",\n")
endforeach()
string(SHA256 ATTN_PAGE_SCRIPT_SHA256 "${whole}")
file(READ ${folder}/live.js ATTN_PAGE_LIVE)
string(SHA256 ATTN_PAGE_LIVE_SHA256 "${whole}${ATTN_PAGE_LIVE}")
file(READ ${web}/library.js ATTN_PAGE_LIBRARY)
file(READ ${web}/worker.js ATTN_PAGE_WORKER)
configure_file(${CMAKE_CURRENT_LIST_DIR}/page.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/report_page.cpp @ONLY)
file(READ ${web}/attn.wasm.gz hex HEX)
string(LENGTH "${hex}" digits)
set(most 32768)  # of a literal
set(ATTN_PAGE_ENGINE "")
foreach(begin RANGE 0 ${digits} ${most})
  string(SUBSTRING "${hex}" ${begin} ${most} part)
  string(LENGTH "${part}" count)
  math(EXPR count "${count} / 2")
  string(REGEX REPLACE "(..)" "\\\\x\\1" part "${part}")
  string(APPEND ATTN_PAGE_ENGINE "{\"${part}\", ${count}},\n")
endforeach()
configure_file(${CMAKE_CURRENT_LIST_DIR}/engine.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/report_engine.cpp @ONLY)
target_sources(attn PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/report_page.cpp ${CMAKE_CURRENT_BINARY_DIR}/report_engine.cpp)
