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

// OneLine reports whether a block stands in one line.
func OneLine(d *Document, b Block) bool {
	_, block, ok := d.find(b)
	return ok && block.OpenBraceRange.Start.Line == block.CloseBraceRange.Start.Line
}

// Formatted reports whether the main file is laid out by the formatter.
func Formatted(d *Document) bool { return d.files[0].formatted }
