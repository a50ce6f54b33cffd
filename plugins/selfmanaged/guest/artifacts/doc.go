// Package artifacts finds and reads the files that an execution gives back beside
// its output: those that it wrote below artifacts/ in the workspace, and those
// that the caller named.
//
// The workspace belongs to user code, which may change it at any time, while the
// guest reads it as root of the sandbox. So nothing here follows a symbolic link,
// also not in the middle of a path, opens what is no regular file, or looks at
// more than a bounded number of entries.
package artifacts
