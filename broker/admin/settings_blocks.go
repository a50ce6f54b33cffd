package admin

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/sandbox-broker/sandbox-broker/config"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// setBlocks puts a block in its place, or all blocks of a repeated field.
func (m *merge) setBlocks(at place, field sdk.Field, value any) error {
	path := at.path + field.Name
	there := 0
	if !at.fresh {
		there = m.document.Count(at.block, field.Name)
	}
	switch {
	case value == nil && there == 0:
		return nil
	case field.Repeated:
		return m.setList(at, field, value, there)
	case value == nil:
		return m.removeBlock(at.within(field, 0, path))
	}
	given, ok := value.(map[string]any)
	if !ok {
		m.fail(path, "must be a block")
		return nil
	}
	inner := at.within(field, 0, path)
	if inner.current = at.current.Block(field.Name); there == 0 {
		return m.addBlock(inner, given)
	}
	return m.fillBlock(inner, given)
}

// within is the place that a block is, which stands in the files as the one at an index.
func (at place) within(field sdk.Field, index int, path string) place {
	was := at.was + field.Name
	if field.Repeated {
		was = fmt.Sprintf("%s[%d]", was, index)
	}
	at.block, at.schema, at.current = at.block.In(field.Name, index), field.Fields, nil
	at.fileOnly = field.FileOnly
	at.path, at.was = path+".", was+"."
	return at
}

// fillBlock gives a block that is there its settings.
func (m *merge) fillBlock(at place, given map[string]any) error {
	if at.whole {
		given = m.completed(at, given)
	}
	return m.setAll(at, given)
}

// completed names what is not named, for it to go.
func (m *merge) completed(at place, given map[string]any) map[string]any {
	all := map[string]any{}
	for _, field := range at.schema {
		all[field.Name] = nil
	}
	for name, value := range given {
		all[name] = value
	}
	m.demand(at, all)
	return all
}

// demand fails for settings that a block must have and is not given.
func (m *merge) demand(at place, given map[string]any) {
	for _, field := range at.schema {
		if field.Required && given[field.Name] == nil {
			m.fail(at.path+field.Name, "is required")
		}
	}
}

// addBlock makes a block. In the place of one that is there it goes in front of it.
func (m *merge) addBlock(at place, given map[string]any) error {
	at.fresh, at.keeps, at.current = true, false, nil
	if err := m.document.Insert(at.block); err != nil {
		return err
	}
	if at.fileOnly {
		m.fail(at.path[:len(at.path)-1], fileOnly)
		return nil
	}
	m.demand(at, given)
	return m.setAll(at, given)
}

// removeBlock takes a block out, which is a mistake if anything in it is the file's. It
// is out then too, so that the others are numbered as those that are given.
func (m *merge) removeBlock(at place) error {
	kept := m.ofTheFile(at)
	if at.fileOnly {
		kept = []string{at.path[:len(at.path)-1]}
	}
	for _, name := range kept {
		m.fail(name, fileOnly)
	}
	return m.document.Remove(at.block)
}

// ofTheFile are the settings in a block that are changed in the file alone, and are there.
func (m *merge) ofTheFile(at place) []string {
	var kept []string
	for _, field := range at.schema {
		switch {
		case field.Type == sdk.TypeBlock:
			for i := range m.document.Count(at.block, field.Name) {
				path := at.path + field.Name
				if field.Repeated {
					path = fmt.Sprintf("%s[%d]", path, i)
				}
				if inner := m.ofTheFile(at.within(field, i, path)); len(inner) > 0 {
					kept = append(kept, inner...)
				} else if field.FileOnly {
					kept = append(kept, path)
				}
			}
		case field.FileOnly && m.origin(at, field.Name).Kind != config.OriginDefault:
			kept = append(kept, at.path+field.Name)
		}
	}
	return kept
}

// setList makes the blocks of a repeated field those that are given. Blocks that are as
// they are shown stay, wherever others come or go. One that is given between the same
// neighbours as one that is there is that one, changed in place. All others are new, and
// what they are given instead of is removed.
func (m *merge) setList(at place, field sdk.Field, value any, there int) error {
	path := at.path + field.Name
	given, ok := blocksIn(value)
	if !ok {
		m.fail(path, "must be a list of blocks")
		return nil
	}
	current := at.current.Blocks(field.Name)
	if at.fresh {
		current = nil
	}
	if len(current) != there {
		m.fail(path, "has mistakes in the file; correct them there")
		return nil
	}
	if err := field.CheckCount(len(given)); err != nil {
		m.fail(path, err.Error())
		return nil
	}
	for i, block := range given {
		if block == nil {
			m.fail(fmt.Sprintf("%s[%d]", path, i), "must be a block")
			ok = false
		}
	}
	if !ok {
		return nil
	}
	shown := make([]string, len(current))
	for i, settings := range current {
		block, _ := showBlock(field.Fields, settings, m.provider, fmt.Sprintf("%s%s[%d]", at.was, field.Name, i))
		shown[i] = asText(block)
	}
	asked := make([]string, len(given))
	for i, block := range given {
		asked[i] = asText(shape(field.Fields, block))
	}
	list := alignment{place: at, field: field, current: current, shown: shown, asked: asked}
	list.align()
	for i := range current {
		if k, same := list.same[i]; same && (list.ambiguous(i) || !at.keeps && len(m.maskedIn(list, i)) > 0) {
			m.fail(fmt.Sprintf("%s[%d]", path, k), "has a masked value, and whose is meant cannot be told, for blocks that are shown the same have come, gone or changed places; give the value itself")
		}
	}
	return m.rewrite(list, given)
}

// rewrite makes the changes that an alignment found: first those in place, as long as the
// blocks are numbered as they were, then what goes, from the end, then what comes.
func (m *merge) rewrite(list alignment, given []map[string]any) error {
	at, field, confusable := list.place, list.field, m.confusable(list)
	pathOf := func(i int) string { return fmt.Sprintf("%s%s[%d]", at.path, field.Name, i) }
	for i := range list.current {
		k, ok := list.changed[i]
		if !ok {
			continue
		}
		inner := at.within(field, i, pathOf(k))
		inner.current, inner.whole = list.current[i], true
		inner.keeps = at.keeps && !confusable[i]
		if err := m.fillBlock(inner, given[k]); err != nil {
			return err
		}
	}
	for i := len(list.current) - 1; i >= 0; i-- {
		if !list.stays(i) {
			if err := m.removeBlock(at.within(field, i, pathOf(i))); err != nil {
				return err
			}
		}
	}
	for k := range given {
		if list.comes(k) {
			if err := m.addBlock(at.within(field, k, pathOf(k)), given[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// alignment says which of the blocks that are given are which of those that are there.
type alignment struct {
	place   place
	field   sdk.Field
	current []sdk.Settings
	// shown and asked are the blocks that are there, and those that are given, as they
	// are shown.
	shown, asked []string
	// same and changed are blocks that are given by those that are there.
	same, changed map[int]int
}

func (a *alignment) stays(i int) bool {
	_, same := a.same[i]
	_, changed := a.changed[i]
	return same || changed
}

func (a *alignment) comes(k int) bool {
	for _, taken := range []map[int]int{a.same, a.changed} {
		for _, other := range taken {
			if other == k {
				return false
			}
		}
	}
	return true
}

// align finds the longest list of blocks that stay as they are, in their order. Between
// two of them, or at the ends, blocks are changed in place where there are as many as
// there were.
func (a *alignment) align() {
	n, k := len(a.shown), len(a.asked)
	longest := make([][]int, n+1)
	for i := range longest {
		longest[i] = make([]int, k+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := k - 1; j >= 0; j-- {
			if longest[i][j] = max(longest[i+1][j], longest[i][j+1]); a.shown[i] == a.asked[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			}
		}
	}
	a.same, a.changed = map[int]int{}, map[int]int{}
	i, j, fromI, fromJ := 0, 0, 0, 0
	gap := func() {
		if i-fromI == j-fromJ {
			for d := range i - fromI {
				a.changed[fromI+d] = fromJ + d
			}
		}
	}
	for i < n && j < k {
		switch {
		case a.shown[i] == a.asked[j]:
			gap()
			a.same[i] = j
			i, j = i+1, j+1
			fromI, fromJ = i, j
		case longest[i+1][j] >= longest[i][j+1]:
			i++
		default:
			j++
		}
	}
	i, j = n, k
	gap()
}

// ambiguous reports whether a block that stays is shown like one that goes or changes, and
// is another.
func (a *alignment) ambiguous(i int) bool {
	for other := range a.current {
		if _, same := a.same[other]; !same && a.shown[other] == a.shown[i] && !reflect.DeepEqual(a.current[other], a.current[i]) {
			return true
		}
	}
	return false
}

// confusable are the blocks that go or change and show a value masked as another of them
// does that has another value there. To keep the one could be meant to keep the other.
func (m *merge) confusable(list alignment) map[int]bool {
	type holders struct {
		values map[string]bool
		blocks map[int]bool
	}
	keys := map[string]holders{}
	each := func(visit func(block int, key string, value any)) {
		for i := range list.current {
			if _, same := list.same[i]; same {
				continue
			}
			for _, v := range m.maskedIn(list, i) {
				visit(i, v.path+asText(v.shown), v.value)
			}
		}
	}
	each(func(block int, key string, value any) {
		if _, ok := keys[key]; !ok {
			keys[key] = holders{map[string]bool{}, map[int]bool{}}
		}
		keys[key].values[asText(value)] = true
		keys[key].blocks[block] = true
	})
	blocks := map[int]bool{}
	each(func(block int, key string, _ any) {
		blocks[block] = blocks[block] || len(keys[key].values) > 1 && len(keys[key].blocks) > 1
	})
	return blocks
}

// maskedValue is a value that is shown masked. Its path has no indices.
type maskedValue struct {
	path         string
	shown, value any
}

func (m *merge) maskedIn(list alignment, i int) []maskedValue {
	at := list.place.within(list.field, i, "")
	return m.maskedValues(at.schema, list.current[i], at.was, "")
}

func (m *merge) maskedValues(schema sdk.Schema, settings sdk.Settings, was, path string) []maskedValue {
	var all []maskedValue
	for _, field := range schema {
		value, ok := settings[field.Name]
		switch v := value.(type) {
		case sdk.Settings:
			all = append(all, m.maskedValues(field.Fields, v, was+field.Name+".", path+field.Name+".")...)
			continue
		case []sdk.Settings:
			for i, block := range v {
				all = append(all, m.maskedValues(field.Fields, block, fmt.Sprintf("%s%s[%d].", was, field.Name, i), path+field.Name+".")...)
			}
			continue
		}
		if ok && isMasked(field, m.provider.Origin(was+field.Name)) {
			for _, one := range parts(value) {
				all = append(all, maskedValue{path + field.Name, maskAll(one), one})
			}
		}
	}
	return all
}

// parts are the texts of a value that are masked one by one, or the value.
func parts(value any) []any {
	var all []any
	switch v := value.(type) {
	case []string:
		for _, item := range v {
			all = append(all, item)
		}
	case map[string]string:
		for _, item := range v {
			all = append(all, item)
		}
	default:
		return []any{value}
	}
	return all
}

// blocksIn are the blocks of a list, nil for an item that is none.
func blocksIn(value any) ([]map[string]any, bool) {
	if value == nil {
		return nil, true
	}
	items, ok := value.([]any)
	if !ok {
		return nil, false
	}
	blocks := make([]map[string]any, len(items))
	for i, item := range items {
		blocks[i], _ = item.(map[string]any)
	}
	return blocks, true
}

// shape is a block as it would be shown, from how it is given: in the types of its
// fields, and with their defaults. What cannot be stays what it is.
func shape(schema sdk.Schema, given map[string]any) map[string]any {
	shaped := map[string]any{}
	for name, value := range given {
		field, ok := schema.Field(name)
		switch {
		case value == nil && ok:
		case !ok:
			shaped[name] = value
		case field.Type == sdk.TypeBlock:
			if blocks := shapeBlocks(field, value); blocks != nil {
				shaped[name] = blocks
			}
		default:
			shaped[name] = shapeOne(field, value)
		}
	}
	for _, field := range schema {
		if given[field.Name] == nil && field.Default != nil {
			shaped[field.Name] = shapeOne(field, field.Default)
			if field.Secret {
				shaped[field.Name] = maskAll(shaped[field.Name])
			}
		}
	}
	return shaped
}

func shapeBlocks(field sdk.Field, value any) any {
	if one, ok := value.(map[string]any); ok && !field.Repeated {
		return shape(field.Fields, one)
	}
	list, ok := value.([]any)
	if !ok || !field.Repeated {
		return value
	}
	if len(list) == 0 {
		return nil
	}
	all := make([]any, len(list))
	for i, item := range list {
		all[i] = item
		if block, ok := item.(map[string]any); ok {
			all[i] = shape(field.Fields, block)
		}
	}
	return all
}

func shapeOne(field sdk.Field, value any) any {
	typed, problems := sdk.Schema{field}.Resolve(map[string]any{field.Name: value})
	if len(problems) > 0 {
		return value
	}
	if wait, ok := typed[field.Name].(time.Duration); ok {
		return wait.String()
	}
	return typed[field.Name]
}

// asText is a value as text that is the same for the same value.
func asText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "" // nothing that came as JSON or from a schema is refused
	}
	return string(text)
}
