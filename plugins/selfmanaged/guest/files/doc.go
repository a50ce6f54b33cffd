// Package files serves the files of the sandbox: the provider's capabilities
// files, file_search, file_watch, file_mode and archives, by the same gRPC services
// that a provider serves, ignoring instance IDs.
//
// Two things keep a call to what code in the sandbox may touch itself. Every path
// is resolved below /workspace or /tmp, the only places where code can write, name by
// name from open directories (see resolve), whatever links and renames code plays
// with meanwhile. And every system call
// that names a file is made with the rights of the user that code runs as (see
// asUser), so the kernel refuses what it would refuse to code.
//
// Nothing is started or kept before the first call, and buffers are small: a guest
// is in every sandbox.
package files
