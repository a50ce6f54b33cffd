package config

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

const (
	// maxIncluded bounds the number of included files, maxIncludedSize their
	// size in all, in bytes.
	maxIncluded     = 1000
	maxIncludedSize = 4 << 20
	// includedSuffix keeps copies and leftovers of editors out, whatever the
	// pattern.
	includedSuffix = ".hcl"
)

// readAll reads the main file and those that it includes, and returns them as
// one body, or nil when reading on makes no sense.
func (p *parser) readAll() *hclsyntax.Body {
	if !p.open(p.main, FileMain, hcl.Range{}) {
		return nil
	}
	all, right := p.includeAll()
	if !right {
		return nil // what is missing would be a mistake elsewhere
	}
	body := p.merge(all)
	p.blocks = body.Blocks
	return body
}

// includeAll reads the files that the main file includes and returns all
// documents in order, the main one first. It reports whether the syntax of all
// is right.
func (p *parser) includeAll() (all []*document, right bool) {
	all = []*document{p.main}
	attr, given := p.main.body.Attributes["include"]
	if !given {
		return all, true
	}
	size := 0
	patterns, right := p.includePatterns(attr)
	for _, pattern := range patterns {
		matches, ok := p.match(pattern)
		right = right && ok
		for _, d := range matches {
			if p.isOpen(d) {
				continue
			}
			if len(all) > maxIncluded {
				p.fail(pattern.rng, "Too many files", fmt.Sprintf("At most %d files can be included.", maxIncluded))
				return all, false
			}
			all = append(all, d)
			right = p.open(d, FileIncluded, pattern.rng) && right
			right = p.refuseEmpty(d) && right
			if size += len(d.text); size > maxIncludedSize {
				p.fail(pattern.rng, "Files too large", fmt.Sprintf("The included files have more than %d MiB in all.", maxIncludedSize>>20))
				return all, false
			}
		}
	}
	return all, right
}

// isOpen reports whether a file was read already, under this name or another:
// two patterns may match it, and one of them the main file.
func (p *parser) isOpen(d *document) bool {
	for _, other := range p.documents {
		if other.path == d.path || d.info != nil && other.info != nil && os.SameFile(d.info, other.info) {
			return true
		}
	}
	return false
}

// refuseEmpty reports a file without any content: an editor may be about to
// write it, and then its tenants have not gone.
func (p *parser) refuseEmpty(d *document) bool {
	if d.body == nil || strings.TrimSpace(string(d.text)) != "" {
		return true
	}
	p.failFile(d, "The file is empty", "Remove it, or write a comment into it.")
	return false
}

// includePattern is one item of include.
type includePattern struct {
	text string
	rng  hcl.Range
}

// includePatterns evaluates include. It is read before everything else and
// takes plain texts.
func (p *parser) includePatterns(attr *hclsyntax.Attribute) (patterns []includePattern, right bool) {
	a := p.evaluateAttribute(attr, &hcl.EvalContext{})
	if a.broken {
		return nil, false
	}
	schema := rootSchema()
	i := slices.Index(names(schema), "include")
	before := p.failures
	s := p.resolve(schema[i:i+1], []attribute{a}, attr.NameRange)
	texts, _ := s["include"].([]string)
	for i, text := range texts {
		patterns = append(patterns, includePattern{text, a.itemRange(i)})
	}
	return patterns, p.failures == before
}

// match returns the files that a pattern names, sorted by name. Only the last
// part of it may have wildcards, so that what is to be watched is known.
func (p *parser) match(pattern includePattern) (matches []*document, ok bool) {
	refuse := func(detail string) ([]*document, bool) {
		p.add(SeverityError, pattern.rng, true, "Invalid value", detail)
		return nil, false
	}
	dir, last := path.Split(pattern.text)
	switch {
	case strings.ContainsRune(pattern.text, 0):
		return refuse("A path has no NUL character.")
	case !strings.HasSuffix(last, includedSuffix):
		return refuse(`A pattern ends in .hcl, such as "conf.d/*.hcl".`)
	case strings.ContainsAny(dir, `*?[\`):
		return refuse(`Only the last part of a pattern may have wildcards, such as "conf.d/*.hcl".`)
	}
	if _, err := path.Match(last, ""); err != nil {
		return refuse("This is not a pattern: * stands for any characters, ? for one, [a-z] for one of them.")
	}
	at := func(name string) *document {
		shown := filepath.Join(dir, name)
		if !filepath.IsAbs(shown) {
			shown = filepath.Join(filepath.Dir(p.main.name), shown)
		}
		return newDocument(filepath.Join(absolute(p.main.dir(), dir), name), shown)
	}
	if !strings.ContainsAny(last, `*?[\`) {
		return []*document{at(last)}, true
	}
	directory := at("")
	found, err := p.reading.list(directory.path, directory.name)
	if err != nil {
		return refuse(fmt.Sprintf("The directory cannot be read: %s.", err))
	}
	slices.Sort(found)
	for _, name := range found {
		// A name that begins with a dot is hidden, as in a shell: editors and
		// volumes of Kubernetes keep their own there.
		if matched, _ := path.Match(last, name); matched && !strings.HasPrefix(name, ".") && strings.HasSuffix(name, includedSuffix) {
			matches = append(matches, at(name))
		}
	}
	return matches, true
}

// merge puts all documents into one body. A setting outside of blocks stands in
// one of them only.
func (p *parser) merge(all []*document) *hclsyntax.Body {
	merged := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}
	for i, d := range all {
		for _, name := range slices.Sorted(maps.Keys(d.body.Attributes)) {
			attr := d.body.Attributes[name]
			earlier, again := merged.Attributes[name]
			switch {
			case name == "include" && i > 0:
				p.fail(attr.NameRange, "Setting not expected", "Only the main file includes others: write include in "+p.main.name+".")
			case again:
				p.fail(attr.NameRange, "Setting given twice", fmt.Sprintf("%s stands at %s already. Keep one of the two.", name, placeFrom(earlier.NameRange, attr.NameRange)))
			default:
				merged.Attributes[name] = attr
			}
		}
		merged.Blocks = append(merged.Blocks, d.body.Blocks...)
	}
	return merged
}
