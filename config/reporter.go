package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxDiagnostics are kept. A file can be wrong in more places than anybody
// reads.
const maxDiagnostics = 200

// reporter collects diagnostics about the files of a configuration.
type reporter struct {
	// mainName is the file that a mistake without a place is about.
	mainName string
	// sources by the name that diagnostics use.
	sources map[string]*source
	// blocks of the top level, to say where a mistake stands.
	blocks []*hclsyntax.Block
	// secrets are values that no text of somebody else may repeat.
	secrets []string
	// ordinary are those of them that are none but for the schema of their setting.
	ordinary []string
	// failures counts the errors, those too that diags does not keep.
	failures int
	diags    Diagnostics
}

func (r *reporter) fail(rng hcl.Range, summary, detail string) {
	r.add(SeverityError, rng, false, summary, detail)
}

// add reports something. A trusted range stands in a setting whose value may be
// shown.
func (r *reporter) add(severity Severity, rng hcl.Range, trusted bool, summary, detail string) {
	if severity == SeverityError {
		r.failures++
	}
	if len(r.diags) >= maxDiagnostics {
		return
	}
	d := Diagnostic{Severity: severity, Summary: summary, Detail: detail, File: r.mainName}
	if rng.Filename != "" {
		d.File = rng.Filename
	}
	src, known := r.sources[d.File]
	if known {
		d.order = src.order
	}
	if rng.Start.Line > 0 && known {
		d.Start, d.End = position(rng.Start), position(rng.End)
		d.Within = r.within(rng)
		d.Excerpt = src.excerpt(rng, trusted)
	}
	r.diags = append(r.diags, d)
	if len(r.diags) == maxDiagnostics {
		r.diags = append(r.diags, Diagnostic{
			Severity: SeverityError, Summary: "Too many mistakes", File: r.mainName,
			Detail: "There may be more than are shown. Correct these first.",
		})
	}
}

// about says which setting the last diagnostic is about.
func (r *reporter) about(setting string) {
	if n := len(r.diags); n > 0 && n < maxDiagnostics {
		r.diags[n-1].Setting = setting
	}
}

// addHCL takes over what the library found.
func (r *reporter) addHCL(diags hcl.Diagnostics) {
	for _, d := range diags {
		severity := SeverityError
		if len(r.diags) >= maxDiagnostics {
			r.failures++
			continue
		}
		if d.Severity == hcl.DiagWarning {
			severity = SeverityWarning
		}
		summary, detail := d.Summary, d.Detail
		switch summary {
		case "Variables not allowed":
			detail = `Text stands in double quotes, such as "info". There are no variables in this file.`
		case "Function calls not allowed":
			detail = "This is read before everything else and takes plain texts only."
		case redefined:
			summary = "Setting given twice"
		}
		rng := hcl.Range{}
		if d.Subject != nil {
			rng = *d.Subject
		}
		r.add(severity, rng, false, r.scrub(summary), r.scrub(detail))
	}
}

// redefined is what the library calls a setting that is given twice.
const redefined = "Attribute redefined"

// within names the block that holds the start of a range.
func (r *reporter) within(rng hcl.Range) string {
	offset := rng.Start.Byte
	for _, block := range r.blocks {
		if block.TypeRange.Filename != rng.Filename {
			continue
		}
		if whole := hcl.RangeBetween(block.TypeRange, block.CloseBraceRange); whole.Start.Byte <= offset && offset < whole.End.Byte {
			return blockName(block)
		}
	}
	return ""
}

// minSecret is the length, in bytes, below which a value is too common a text
// to be searched for.
const minSecret = 4

// scrub removes the secrets from a text that somebody else wrote.
func (r *reporter) scrub(text string) string {
	for _, secret := range r.secrets {
		if len(secret) >= minSecret {
			text = strings.ReplaceAll(text, secret, hidden)
		}
	}
	return text
}

func position(p hcl.Pos) Position {
	return Position{Line: p.Line, Column: p.Column, Byte: p.Byte}
}

// blockName is a block's type and label, as written.
func blockName(block *hclsyntax.Block) string {
	if len(block.Labels) == 0 {
		return block.Type
	}
	return fmt.Sprintf("%s %q", block.Type, block.Labels[0])
}

// unknownName says what could have been meant.
func unknownName(kind, name string, known []string) string {
	return fmt.Sprintf("There is no %s %q here. %s", kind, name, suggest(name, known))
}

// quotedList are names as they are written in the file.
func quotedList(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	return strings.Join(quoted, ", ")
}

// suggest names the nearest of the known names, or all when none is near. It
// does not repeat the name itself, which may come from env().
func suggest(name string, known []string) string {
	best, distance := "", 3
	for _, candidate := range known {
		if d := levenshtein.Distance(strings.ToLower(name), candidate, nil); d < distance && d < len(candidate) {
			best, distance = candidate, d
		}
	}
	switch {
	case best != "":
		return fmt.Sprintf("Did you mean %q?", best)
	case len(known) == 0:
		return "There is none of any name."
	default:
		return "Known: " + strings.Join(known, ", ") + "."
	}
}
