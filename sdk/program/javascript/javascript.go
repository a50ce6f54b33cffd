// Package javascript reads JavaScript, as far as whoever runs it has to look inside:
// whether it is a module or a script, and whether its main expects to be called. It
// imports nothing of the SDK, so that a guest in a sandbox can use it.
package javascript

import (
	"fmt"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/js"
)

// maxParsed bounds the code that is looked into. The parser's stack grows with
// the nesting of some constructs, and the end of the stack would be the end of
// the process.
const maxParsed = 256 << 10

// Program is code that was parsed.
type Program struct {
	*js.AST
	// Returns is set if it can only be a script that returns at its top level.
	Returns bool
	// Source has the names and literals of the tree in it, as parts of the slice.
	Source []byte
}

// Parse parses a module or a script; a script may return, as Node lets it. What
// Node can run may still be an error here.
func Parse(code string) (*Program, error) {
	if len(code) > maxParsed {
		return nil, fmt.Errorf("the code is larger than %d KiB", maxParsed>>10)
	}
	source := append(make([]byte, 0, len(code)+1), code...) // the parser wants room for one byte
	ast, err := js.Parse(parse.NewInputBytes(source), js.Options{})
	if err == nil {
		return &Program{AST: ast, Source: source}, nil
	}
	if ast, errInline := js.Parse(parse.NewInputBytes(source), js.Options{Inline: true}); errInline == nil {
		return &Program{AST: ast, Returns: true, Source: source}, nil
	}
	return nil, err
}
