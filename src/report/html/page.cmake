# The report's page travels inside the library: its files as string literals, and the hashes by which the page's
# Content-Security-Policy lets exactly this script and this style in.
set(folder ${CMAKE_CURRENT_LIST_DIR}/page)
# Lower parts first: what data, drawing and selection are made of, then the panels, then the start.
set(scripts data colour state matrix export random forward arithmetic header overview flow stage lines heads space softmax masks dropout
            split checks snippets main)
list(TRANSFORM scripts PREPEND ${folder}/)
list(TRANSFORM scripts APPEND .js)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folder}/page.html ${folder}/style.css ${scripts})

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
configure_file(${CMAKE_CURRENT_LIST_DIR}/page.cpp.in ${CMAKE_CURRENT_BINARY_DIR}/report_page.cpp @ONLY)
target_sources(attn PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/report_page.cpp)
