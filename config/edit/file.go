package edit

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// file is the text of one file and what stands where in it.
type file struct {
	path, name string
	sum        [sha256.Size]byte // of original
	original   []byte            // as it is on disk
	text       []byte
	body       *hclsyntax.Body
	// newline is how its lines end.
	newline string
	// formatted says that it is laid out as the formatter does it.
	formatted bool
	// comments are those that go over several lines, which are one line to HCL.
	comments []hcl.Range
}

func newFile(read config.File, text []byte) (*file, config.Diagnostics) {
	f := &file{path: read.Path, name: read.Name, sum: read.SHA256, original: text, text: text, newline: "\n"}
	if first, _, found := bytes.Cut(text, []byte("\n")); found && bytes.HasSuffix(first, []byte("\r")) {
		f.newline = "\r\n"
	}
	body, diags := config.Syntax(f.name, text)
	if diags.HasErrors() {
		return nil, diags
	}
	f.body, f.comments = body, longComments(f.name, text)
	f.formatted = bytes.Equal(hclwrite.Format(text), text)
	return f, nil
}

// splice puts text in place of what stands from start to end, in bytes. Its lines
// end as those of the file do. A file that was laid out by the formatter is so
// afterwards; in any other nothing else changes.
func (f *file) splice(start, end int, text string) error {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\n", f.newline)
	changed := append(append(bytes.Clone(f.text[:start]), text...), f.text[end:]...)
	if f.formatted {
		changed = hclwrite.Format(changed)
	}
	body, diags := config.Syntax(f.name, changed)
	if diags.HasErrors() {
		return sdk.Errorf(sdk.CodeInternal, "%s: the change would break the file: %w", f.name, diags)
	}
	f.text, f.body, f.comments = changed, body, longComments(f.name, changed)
	return nil
}

func longComments(name string, text []byte) []hcl.Range {
	if !bytes.Contains(text, []byte("/*")) {
		return nil
	}
	var comments []hcl.Range
	tokens, _ := hclsyntax.LexConfig(text, name, hcl.InitialPos)
	for _, token := range tokens {
		if token.Type == hclsyntax.TokenComment && bytes.HasPrefix(token.Bytes, []byte("/*")) && token.Range.Start.Line != token.Range.End.Line {
			comments = append(comments, token.Range)
		}
	}
	return comments
}

// lineStart is where the line of an offset begins.
func (f *file) lineStart(offset int) int {
	start := bytes.LastIndexByte(f.text[:offset], '\n') + 1
	for _, c := range f.comments {
		if c.Start.Byte < start && start < c.End.Byte {
			return f.lineStart(c.Start.Byte)
		}
	}
	return start
}

// lineEnd is where the line after that of an offset begins.
func (f *file) lineEnd(offset int) int {
	i := bytes.IndexByte(f.text[offset:], '\n')
	if i < 0 {
		return len(f.text)
	}
	end := offset + i + 1
	for _, c := range f.comments {
		if c.Start.Byte < end && end < c.End.Byte {
			return f.lineEnd(c.End.Byte)
		}
	}
	return end
}

// indentation is the white space at the beginning of the line of an offset.
func (f *file) indentation(offset int) string {
	line := string(f.text[f.lineStart(offset):offset])
	return line[:len(line)-len(strings.TrimLeft(line, " \t"))]
}

// blank reports whether a part of the text is white space.
func (f *file) blank(start, end int) bool {
	return len(bytes.TrimSpace(f.text[start:end])) == 0
}

// leadComments is where the comment directly above an offset begins, or the line
// of the offset when there is none. What begins at the top of the file belongs to
// the file.
func (f *file) leadComments(offset int) int {
	start := f.lineStart(offset)
	begin := start
	for begin > 0 {
		above := f.lineStart(begin - 1)
		line := bytes.TrimSpace(f.text[above:begin])
		if !bytes.HasPrefix(line, []byte("#")) && !bytes.HasPrefix(line, []byte("//")) {
			return begin
		}
		begin = above
	}
	return start
}

// place says where something is, for a message.
func (f *file) place(rng hcl.Range) string {
	return fmt.Sprintf("%s:%d", f.name, rng.Start.Line)
}
