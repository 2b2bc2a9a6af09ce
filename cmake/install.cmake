# The install target: library, headers, the command where it is built, and what find_package and pkg-config read.
include(CMakePackageConfigHelpers)

install(TARGETS attn EXPORT attnTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/attn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
# attn::mpi, in a file of its own: who does not ask for it needs no MPI.
if(ATTN_MPI)
  install(TARGETS attn_mpi EXPORT attnMpiTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT attnMpiTargets NAMESPACE attn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
endif()
install(FILES ${PROJECT_BINARY_DIR}/include/attn/version.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/attn)
get_target_property(ATTN_LIBRARY_TYPE attn TYPE)
if(TARGET attn_command)
  if(ATTN_LIBRARY_TYPE STREQUAL "SHARED_LIBRARY")
    file(RELATIVE_PATH ATTN_RPATH /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
    set_target_properties(attn_command PROPERTIES INSTALL_RPATH $ORIGIN/${ATTN_RPATH})
  endif()
  install(TARGETS attn_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

  # Manual pages and completions, told by the command that was just built, if this machine can run it.
  if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
    set(ATTN_SHARE ${PROJECT_BINARY_DIR}/share)
    add_custom_command(OUTPUT ${ATTN_SHARE}/man/man1/attn.1
                       COMMAND ${CMAKE_COMMAND} -D "ATTN=${CMAKE_CROSSCOMPILING_EMULATOR}$<SEMICOLON>$<TARGET_FILE:attn_command>"
                               -D OUT=${ATTN_SHARE} -P ${PROJECT_SOURCE_DIR}/cmake/documents.cmake
                       DEPENDS attn_command ${PROJECT_SOURCE_DIR}/cmake/documents.cmake VERBATIM)
    add_custom_target(attn_documents ALL DEPENDS ${ATTN_SHARE}/man/man1/attn.1)
    foreach(folder IN ITEMS man bash-completion fish)
      install(DIRECTORY ${ATTN_SHARE}/${folder} DESTINATION ${CMAKE_INSTALL_DATAROOTDIR})
    endforeach()
    # Debian's zsh looks elsewhere for what packages bring.
    install(CODE [[
      set(ATTN_ZSH site-functions)
      if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" AND EXISTS /etc/debian_version)
        set(ATTN_ZSH vendor-completions)
      endif()]])
    install(FILES ${ATTN_SHARE}/zsh/_attn DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/zsh/\${ATTN_ZSH}")
  endif()
endif()

# find_package(attn). A static library leaves its own dependencies to whoever links it.
set(ATTN_CONFIG_FOLDER ${CMAKE_INSTALL_LIBDIR}/cmake/attn)
install(EXPORT attnTargets NAMESPACE attn:: DESTINATION ${ATTN_CONFIG_FOLDER})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/attnConfig.cmake.in ${PROJECT_BINARY_DIR}/attnConfig.cmake
                              INSTALL_DESTINATION ${ATTN_CONFIG_FOLDER})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/attnConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/attnConfig.cmake ${PROJECT_BINARY_DIR}/attnConfigVersion.cmake
        DESTINATION ${ATTN_CONFIG_FOLDER})

# pkg-config attn. Who links a static library links its dependencies too. Paths follow the file, so that the folder may
# move.
file(RELATIVE_PATH ATTN_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" ATTN_PC_PREFIX ${ATTN_PC_PREFIX})
set(ATTN_PC_PRIVATE "")
set(ATTN_PC_LIBS "${OpenMP_CXX_FLAGS} -pthread -lstdc++ -lm")
if(CMAKE_DL_LIBS)
  string(APPEND ATTN_PC_LIBS " -l${CMAKE_DL_LIBS}")
endif()
if(ATTN_LIBRARY_TYPE STREQUAL "SHARED_LIBRARY")
  set(ATTN_PC_PRIVATE .private)
  string(PREPEND ATTN_PC_LIBS "\nLibs.private: ")
endif()
set(ATTN_PC_REQUIRES "")
if(ATTN_NPZ)
  set(ATTN_PC_REQUIRES libzip)
endif()
if(ATTN_ZLIB)
  string(APPEND ATTN_PC_REQUIRES " zlib")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/attn.pc.in ${PROJECT_BINARY_DIR}/attn.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/attn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# A Debian package: `make package`, or cpack in the build folder.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME attn)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGE_CONTACT "the maintainers of attention.cpp")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "librsvg2-2, libzip-dev, nlohmann-json3-dev")  # PNG figures; programs that link to it
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # from the libraries that the command is linked to
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
include(CPack)
