package edit

// Texts are the files as they would be written.
func Texts(d *Document) []string {
	var texts []string
	for _, f := range d.files {
		texts = append(texts, string(f.text))
	}
	return texts
}

// Given reports whether a block has a setting.
func Given(d *Document, b Block, setting string) bool {
	_, block, ok := d.find(b)
	return ok && block.Body.Attributes[setting] != nil
}

// Written is the text of a setting's value; "" for one that is not given.
func Written(d *Document, b Block, setting string) string {
	f, block, ok := d.find(b)
	if !ok || block.Body.Attributes[setting] == nil {
		return ""
	}
	rng := block.Body.Attributes[setting].Expr.Range()
	return string(f.text[rng.Start.Byte:rng.End.Byte])
}

// OneLine reports whether a block stands in one line.
func OneLine(d *Document, b Block) bool {
	f, block, ok := d.find(b)
	return ok && f.oneLine(block)
}

// Formatted reports whether the main file is laid out by the formatter.
func Formatted(d *Document) bool { return d.files[0].formatted }
