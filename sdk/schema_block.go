package sdk

import (
	"errors"
	"fmt"
	"iter"
	"math"
)

// Paths returns every field, those of blocks behind their block, with its path, such as
// auth.token. Documentation and redaction go by it. Repeated blocks have no number in the
// path: it stands for all of them.
func (s Schema) Paths() iter.Seq2[string, Field] {
	return func(yield func(string, Field) bool) { s.paths("", yield) }
}

func (s Schema) paths(prefix string, yield func(string, Field) bool) bool {
	for _, f := range s {
		if path := prefix + f.Name; !yield(path, f) || !f.Fields.paths(path+".", yield) {
			return false
		}
	}
	return true
}

// validateBlock checks what a block says of itself; its fields are a schema of their own.
func (f Field) validateBlock() error {
	switch {
	case f.Type != TypeBlock && (len(f.Fields) > 0 || f.Repeated):
		return fmt.Errorf("fields and repeated are for blocks, not for %s", f.Type)
	case f.Type != TypeBlock:
		return nil
	case len(f.Fields) == 0:
		return errors.New("a block has fields")
	case f.Secret:
		return errors.New("a block is no secret; mark those of its fields that are")
	case f.Default != nil:
		return errors.New("a block has no default; its fields may have")
	case !f.Repeated && (f.Min != nil || f.Max != nil):
		return errors.New("min and max are for blocks that are repeated")
	}
	for _, bound := range []*float64{f.Min, f.Max} {
		if bound != nil && (*bound != math.Trunc(*bound) || *bound < 0 || *bound > maxBlocks) {
			return fmt.Errorf("min and max of a block that is repeated are whole numbers from 0 to %d", maxBlocks)
		}
	}
	return nil
}

// resolveBlocks is Resolve for a block: Settings, or []Settings where it is repeated. The
// mistakes of all blocks are told, and none of them is used where there is one.
func (f Field) resolveBlocks(value any) (any, []FieldError) {
	if !f.Repeated {
		given, ok := anySettings(value)
		if !ok {
			return nil, []FieldError{{f.Name, "must be a block"}}
		}
		settings, problems := f.Fields.Resolve(given)
		return settings, within(f.Name, problems)
	}
	given, ok := anyBlocks(value)
	if !ok {
		return nil, []FieldError{{f.Name, "must be a list of blocks"}}
	}
	if err := f.CheckCount(len(given)); err != nil {
		return nil, []FieldError{{f.Name, err.Error()}}
	}
	blocks := make([]Settings, len(given))
	var problems []FieldError
	for i, item := range given {
		path := fmt.Sprintf("%s[%d]", f.Name, i)
		one, ok := anySettings(item)
		if !ok {
			problems = append(problems, FieldError{path, "must be a block"})
			continue
		}
		settings, wrong := f.Fields.Resolve(one)
		problems = append(problems, within(path, wrong)...)
		blocks[i] = settings
	}
	return blocks, problems
}

// CheckCount says whether a repeated block may stand so many times, at most 1,000 whatever
// its Max; 0 is for one that is not given. Other fields have no count.
func (f Field) CheckCount(n int) error {
	if !f.Repeated {
		return nil
	}
	switch {
	case n == 0 && f.Required:
		return errors.New("is required")
	case n > maxBlocks:
		return fmt.Errorf("must stand at most %d times", maxBlocks)
	}
	return f.check(make([]Settings, n))
}

// within puts the path of a block before those of its mistakes.
func within(path string, problems []FieldError) []FieldError {
	for i := range problems {
		problems[i].Field = path + "." + problems[i].Field
	}
	return problems
}

func anySettings(value any) (map[string]any, bool) {
	switch v := value.(type) {
	case Settings:
		return v, true
	case map[string]any:
		return v, true
	default:
		return nil, false
	}
}

func anyBlocks(value any) ([]any, bool) {
	switch v := value.(type) {
	case []any:
		return v, true
	case []Settings:
		return anyItems(v), true
	case []map[string]any:
		return anyItems(v), true
	default:
		return nil, false
	}
}

// Block returns a block of a field that is not repeated, nil if it is not given. Nil has no
// settings, and Decode leaves everything as it is.
func (s Settings) Block(name string) Settings {
	block, _ := s[name].(Settings)
	return block
}

// Blocks returns the blocks of a repeated field, in their order in the file; none where it
// is not given.
func (s Settings) Blocks(name string) []Settings {
	blocks, _ := s[name].([]Settings)
	return blocks
}
