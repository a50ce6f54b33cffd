package config

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// parser reads the files of a configuration and collects what is wrong with
// them.
type parser struct {
	around  surroundings
	reading *reading
	main    *document
	// documents by the name that diagnostics use.
	documents map[string]*document
	keys      keySource
	// returned is how much the functions have returned, in bytes.
	returned int
	reporter
}

// document is one of the files.
type document struct {
	path, name string
	info       os.FileInfo // nil when there is no such file
	text       []byte
	body       *hclsyntax.Body // nil when the syntax is wrong
	eval       *hcl.EvalContext
}

func newDocument(path, name string) *document {
	info, err := os.Stat(path)
	if err != nil {
		info = nil // the reason is told by who reads it
	}
	return &document{path: path, name: name, info: info}
}

// dir is where the document's relative paths start.
func (d *document) dir() string { return filepath.Dir(d.path) }

func newParser(filename string, options []Option) (*parser, error) {
	around := surroundings{lookupEnv: os.LookupEnv, contents: map[string][]byte{}}
	for _, option := range options {
		option(&around)
	}
	path, err := filepath.Abs(filename)
	if err != nil {
		return nil, err
	}
	if around.pluginDir == "" {
		if around.pluginDir, err = DefaultPluginDir(); err != nil {
			return nil, err
		}
	}
	return &parser{
		around:    around,
		reading:   newReading(around.contents),
		main:      newDocument(path, filename),
		documents: map[string]*document{},
		reporter:  reporter{mainName: filename, sources: map[string]*source{}},
	}, nil
}

// open reads a file and its syntax. It reports whether both went well; that
// there is no such file is told where it was asked for.
func (p *parser) open(d *document, kind FileKind, from hcl.Range) bool {
	p.documents[d.name] = d
	text, err := p.reading.read(d.path, d.name, kind, maxFileSize)
	p.sources[d.name] = newSource(d.name, len(p.sources), text)
	switch {
	case err != nil && kind == FileIncluded:
		p.add(SeverityError, from, true, cannotRead, fmt.Sprintf("%s: %s.", d.name, err))
		return false
	case err != nil:
		p.failFile(d, cannotRead, capitalize(err.Error())+".")
		return false
	}
	d.text = text
	d.eval = &hcl.EvalContext{Functions: p.functions(d)}
	d.body = p.parseSyntax(d)
	return d.body != nil
}

// failFile reports something about a file as a whole.
func (p *parser) failFile(d *document, summary, detail string) {
	p.fail(hcl.Range{Filename: d.name}, summary, detail)
}

// maxNesting of brackets and signs. The parser recurses for each, and a stack
// that overflows ends the process.
const maxNesting = 100

// parseSyntax returns the body of a file, or nil when reading on makes no
// sense.
func (p *parser) parseSyntax(d *document) *hclsyntax.Body {
	if err := checkTokens(d.text, d.name); err != nil {
		p.failFile(d, cannotRead, capitalize(err.Error())+".")
		return nil
	}
	file, diags := hclsyntax.ParseConfig(d.text, d.name, hcl.InitialPos)
	p.addHCL(firstOfEach(diags))
	for _, d := range diags {
		// The parser recovers from a name that is given twice without loss.
		// After any other mistake the rest of the file may seem to be in the
		// wrong place.
		if d.Summary != redefined {
			return nil
		}
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	return body
}

// firstOfEach leaves out what only follows from an earlier mistake: a quote that
// is not closed makes every further line a mistake of its own.
func firstOfEach(diags hcl.Diagnostics) hcl.Diagnostics {
	var kept hcl.Diagnostics
	unclosed := false
	for _, d := range diags {
		switch d.Summary {
		case "Invalid multi-line string":
			if unclosed {
				continue
			}
			unclosed = true
		case "Unterminated template string":
			if len(kept) > 0 && *kept[len(kept)-1].Subject == *d.Subject {
				continue
			}
		}
		kept = append(kept, d)
	}
	return kept
}

// maxExponents bounds the sum of the exponents in a file, and so the digits of
// any product: 1e400 is short to write and long to print.
const maxExponents = 10_000

// checkTokens refuses what the parser or the evaluation could not bear.
func checkTokens(text []byte, name string) error {
	tokens, _ := hclsyntax.LexConfig(text, name, hcl.InitialPos)
	depth, signs, exponents := 0, 0, 0
	for _, token := range tokens {
		line := token.Range.Start.Line
		switch token.Type {
		case hclsyntax.TokenBang, hclsyntax.TokenMinus:
			signs++
			if signs > maxNesting {
				return fmt.Errorf("line %d has more than %d signs in a row", line, maxNesting)
			}
			continue
		case hclsyntax.TokenNumberLit:
			if exponents += exponent(token.Bytes); exponents > maxExponents {
				return fmt.Errorf("the number in line %d is too large", line)
			}
		case hclsyntax.TokenOParen, hclsyntax.TokenOBrack, hclsyntax.TokenOBrace,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenCBrace, hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		signs = 0
		if depth > maxNesting {
			return fmt.Errorf("brackets are nested more than %d deep at line %d", maxNesting, line)
		}
	}
	return nil
}

// exponent returns how far that of a number is from zero.
func exponent(number []byte) int {
	i := bytes.IndexAny(number, "eE")
	if i < 0 {
		return 0
	}
	n, err := strconv.Atoi(string(number[i+1:]))
	if err != nil || n > maxExponents || n < -maxExponents {
		return maxExponents + 1
	}
	return max(n, -n)
}

// blockKind says how a block is read.
type blockKind struct {
	// label is the pattern of its one label; nil means that it has none.
	label *regexp.Regexp
	// names are the only ones that the label may be, where it may not be any.
	names []string
	// reserved are names that match the pattern and mean something else.
	reserved []string
	// read gets a block whose labels are right.
	read func(*hclsyntax.Block)
}

// placeFrom names a place for a message about another: its line, and its file
// if that is another too.
func placeFrom(place, message hcl.Range) string {
	if place.Filename == message.Filename {
		return fmt.Sprintf("line %d", place.Start.Line)
	}
	return fmt.Sprintf("%s:%d", place.Filename, place.Start.Line)
}

// readBlocks reads the blocks of a body. Two of the same kind and label are a
// mistake.
func (p *parser) readBlocks(blocks hclsyntax.Blocks, kinds map[string]blockKind) {
	first := map[string]hcl.Range{}
	for _, block := range blocks {
		kind, known := kinds[block.Type]
		if !known {
			p.fail(block.TypeRange, "Unknown block", unknownName("block", block.Type, slices.Sorted(maps.Keys(kinds))))
			continue
		}
		if !p.checkLabels(block, kind) {
			continue
		}
		name := blockName(block)
		if earlier, again := first[name]; again {
			p.fail(block.DefRange(), "Block given twice", fmt.Sprintf("The block %s stands at %s already. Merge the two.", name, placeFrom(earlier, block.DefRange())))
			continue
		}
		first[name] = block.DefRange()
		kind.read(block)
	}
}

func (p *parser) checkLabels(block *hclsyntax.Block, kind blockKind) bool {
	switch {
	case kind.label == nil && len(block.Labels) > 0:
		p.fail(block.LabelRanges[0], "Label not expected", fmt.Sprintf("The block %s has no label: write %s { ... }.", block.Type, block.Type))
	case kind.label != nil && len(block.Labels) == 0:
		p.fail(block.TypeRange, "Label missing", fmt.Sprintf("A %s block has a name: write %s \"name\" { ... }.", block.Type, block.Type))
	case kind.label != nil && len(block.Labels) > 1:
		p.fail(block.LabelRanges[1], "Label not expected", fmt.Sprintf("A %s block has one name only.", block.Type))
	case len(kind.names) > 0 && !slices.Contains(kind.names, block.Labels[0]):
		p.fail(block.LabelRanges[0], "Invalid name", fmt.Sprintf("The name of a %s block is one of %s.", block.Type, quotedList(kind.names)))
	case kind.label != nil && !kind.label.MatchString(block.Labels[0]):
		p.fail(block.LabelRanges[0], "Invalid name", fmt.Sprintf("The name of a %s block must match %s.", block.Type, kind.label))
	case kind.label != nil && slices.Contains(kind.reserved, block.Labels[0]):
		p.fail(block.LabelRanges[0], "Reserved name", fmt.Sprintf("%q is a word of the admin API, where it stands beside the names of the %s blocks. Choose another name, here and where this one is referred to.", block.Labels[0], block.Type))
	default:
		return true
	}
	return false
}
