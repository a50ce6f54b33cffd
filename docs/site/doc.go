// Package site makes static pages of the Markdown files that people read: those of docs/ and
// examples/, the README and the list of changes. The pages need no server and load nothing
// from elsewhere; their search is a file that is made here and a small script.
//
// What a link leads to is a page too, or a file of the repository, which is shown with its
// source; a link to nothing is an error. What the pages say is checked in package docs.
// Command build below writes the files, and `make site` calls it.
package site
