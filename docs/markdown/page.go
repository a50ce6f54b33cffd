package markdown

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// Page is one Markdown file.
type Page struct {
	// Text of the whole file.
	Text string
	// Blocks are the fenced code blocks, in order.
	Blocks []Block
	// Headings as they stand in the text, without the signs before them.
	Headings []string
	// Links are the targets of [text](target), outside of code.
	Links []string
}

// Block is a fenced code block.
type Block struct {
	// Language is the word behind the opening fence.
	Language string
	// Code between the fences, with its last newline.
	Code string
	// Line of the opening fence, from 1.
	Line int
}

var (
	link       = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	inlineCode = regexp.MustCompile("`[^`]*`")
)

// Pages lists the files of the repository at root that people read, README.md
// first.
func Pages(root string) ([]string, error) {
	pages := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CHANGELOG.md")}
	for _, dir := range []string{"docs", "examples"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.Name() == "node_modules" { // what npm has installed for examples
				return fs.SkipDir
			}
			if err == nil && filepath.Ext(path) == ".md" {
				pages = append(pages, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// Read reads a file.
func Read(path string) (Page, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Page{}, err
	}
	return Parse(string(text)), nil
}

// Parse reads a page from memory.
func Parse(text string) Page {
	page := Page{Text: text}
	var open *Block
	number := 0
	for line := range strings.Lines(text) {
		number++
		fence, isFence := strings.CutPrefix(strings.TrimRight(line, "\n"), "```")
		switch {
		case isFence && open == nil:
			open = &Block{Language: fence, Line: number}
		case isFence:
			page.Blocks = append(page.Blocks, *open)
			open = nil
		case open != nil:
			open.Code += line
		case strings.HasPrefix(line, "#"):
			page.Headings = append(page.Headings, strings.TrimSpace(strings.TrimLeft(line, "#")))
		default:
			for _, match := range link.FindAllStringSubmatch(inlineCode.ReplaceAllString(line, ""), -1) {
				page.Links = append(page.Links, match[1])
			}
		}
	}
	if open != nil { // never closed; what shows a page ends it too
		page.Blocks = append(page.Blocks, *open)
	}
	return page
}

// Anchors are what a link to one of the headings has behind its #.
func (p Page) Anchors() []string {
	var anchors []string
	for _, heading := range p.Headings {
		anchors = append(anchors, Anchor(heading))
	}
	return anchors
}

// Anchor is what a link to a heading has behind its #, by GitHub's rule: lower case, spaces
// become hyphens, punctuation goes. Of headings with the same text GitHub counts the later
// ones, which this does not know.
func Anchor(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		default:
			return -1
		}
	}, heading)
}
