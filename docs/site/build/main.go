// Command build writes the site of docs/ into a directory, which it makes anew.
//
//	build [-root DIRECTORY] [-source URL] DIRECTORY
//
// With -source, links to files of the repository lead to that URL with their path behind it,
// and not to pages of the site that show them.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/sandbox-broker/sandbox-broker/docs/site"
)

func main() {
	root := flag.String("root", ".", "the directory of the repository")
	source := flag.String("source", "", "where the files of the repository are shown, such as https://example.com/blob/main/")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: build [-root DIRECTORY] [-source URL] DIRECTORY")
		os.Exit(2)
	}
	files, err := site.Build(*root, *source)
	if err == nil {
		err = site.Write(flag.Arg(0), files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
