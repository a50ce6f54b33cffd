// Package dockerfile reads Dockerfiles, which may be hostile, and says what is to be done to
// build one: Read makes a Plan of its stages and steps, with all variables put in, and Copy
// finds the files of a COPY below a directory that nothing leads out of.
//
// It runs nothing, fetches nothing and keeps nothing: that is the business of package
// imagestore, and what a RUN runs in that of the provider. The syntax itself is read by the
// parser of BuildKit.
package dockerfile
