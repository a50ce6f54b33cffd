package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// parser reads one file and collects what is wrong with it.
type parser struct {
	around surroundings
	dir    string // absolute; where relative paths start
	text   []byte
	eval   *hcl.EvalContext
	reporter
}

func newParser(filename string, text []byte, around surroundings) (*parser, error) {
	if len(text) > maxFileSize {
		return nil, fmt.Errorf("larger than %d KiB", maxFileSize>>10)
	}
	path, err := filepath.Abs(filename)
	if err != nil {
		return nil, err
	}
	if around.pluginDir == "" {
		if around.pluginDir, err = defaultPluginDir(); err != nil {
			return nil, err
		}
	}
	p := &parser{around: around, dir: filepath.Dir(path), text: text}
	p.src = newSource(filename, text)
	p.eval = &hcl.EvalContext{Functions: functions(around, p.dir, func(secret string) {
		p.secrets = append(p.secrets, secret)
	})}
	return p, nil
}

// maxNesting of brackets and signs. The parser recurses for each, and a stack
// that overflows ends the process.
const maxNesting = 100

// parseSyntax returns the body of the file, or nil when reading on makes no
// sense.
func (p *parser) parseSyntax() *hclsyntax.Body {
	if err := p.checkNesting(); err != nil {
		p.fail(hcl.Range{}, "The configuration cannot be read", capitalize(err.Error())+".")
		return nil
	}
	file, diags := hclsyntax.ParseConfig(p.text, p.src.name, hcl.InitialPos)
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
	p.blocks = body.Blocks
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

func (p *parser) checkNesting() error {
	tokens, _ := hclsyntax.LexConfig(p.text, p.src.name, hcl.InitialPos)
	depth, signs := 0, 0
	for _, token := range tokens {
		switch token.Type {
		case hclsyntax.TokenBang, hclsyntax.TokenMinus:
			signs++
			if signs > maxNesting {
				return fmt.Errorf("line %d has more than %d signs in a row", token.Range.Start.Line, maxNesting)
			}
			continue
		case hclsyntax.TokenOParen, hclsyntax.TokenOBrack, hclsyntax.TokenOBrace,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCParen, hclsyntax.TokenCBrack, hclsyntax.TokenCBrace, hclsyntax.TokenTemplateSeqEnd:
			depth--
		}
		signs = 0
		if depth > maxNesting {
			return fmt.Errorf("brackets are nested more than %d deep at line %d", maxNesting, token.Range.Start.Line)
		}
	}
	return nil
}

// blockKind says how a block is read.
type blockKind struct {
	// label is the pattern of its one label; nil means that it has none.
	label *regexp.Regexp
	// read gets a block whose labels are right.
	read func(*hclsyntax.Block)
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
			p.fail(block.DefRange(), "Block given twice", fmt.Sprintf("The block %s stands at line %d already. Merge the two.", name, earlier.Start.Line))
			continue
		}
		first[name] = block.DefRange()
		kind.read(block)
	}
}

func (p *parser) checkLabels(block *hclsyntax.Block, kind blockKind) bool {
	switch {
	case kind.label == nil && len(block.Labels) > 0:
		p.fail(block.LabelRanges[0], "Label not expected", fmt.Sprintf("A %s block has no label: write %s { ... }.", block.Type, block.Type))
	case kind.label != nil && len(block.Labels) == 0:
		p.fail(block.TypeRange, "Label missing", fmt.Sprintf("A %s block has a name: write %s \"name\" { ... }.", block.Type, block.Type))
	case kind.label != nil && len(block.Labels) > 1:
		p.fail(block.LabelRanges[1], "Label not expected", fmt.Sprintf("A %s block has one name only.", block.Type))
	case kind.label != nil && !kind.label.MatchString(block.Labels[0]):
		p.fail(block.LabelRanges[0], "Invalid name", fmt.Sprintf("The name of a %s block must match %s.", block.Type, kind.label))
	default:
		return true
	}
	return false
}
