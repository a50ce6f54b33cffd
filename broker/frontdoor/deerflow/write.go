package deerflow

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// A body that writes a file may have 140 MB, and is never held as a whole: its content is
// decoded and written as it comes. How that is encoded, clients say behind it. What it is
// then depends on what it looks like, and where it turns out to be something else, nothing
// is written: a file appears whole, when all of the body has been read, or not at all.

// The encodings of a content.
const (
	encodingText   = "utf-8"
	encodingRaw    = "raw" // the same
	encodingBase64 = "base64"
)

// Bounds of such a body.
const (
	// maxAhead is how much of a content is looked at to tell what it is, in bytes.
	maxAhead = 1 << 20
	// maxField bounds what is not the content, each, in bytes.
	maxField  = 64 << 10
	maxFields = 32
)

type written struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes_written"`
}

// writeFile makes or replaces a file, and the directories above it.
func (d *Door) writeFile(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return rest.BadRequest(http.StatusUnsupportedMediaType, "The body must not be compressed.")
	}
	body := newWriting(r.Body)
	name, content, err := body.begin()
	if err != nil {
		return body.explain(err)
	}
	req := sdk.WriteFileRequest{Path: name, MakeParents: true}
	file, err := lending.WriteFile(r.Context(), d.instances, c.Tenant, info.ID.String(), req, content)
	if err != nil {
		if own := content.refusal(); own != nil {
			err = own
		}
		return body.explain(err)
	}
	return answer(w, enveloped(written{name, file.Size}))
}

// writing reads a body that writes a file.
type writing struct {
	from   *bufio.Reader
	broken error // why the body did not come
	f      fields
}

func newWriting(body io.Reader) *writing {
	b := &writing{f: fields{}}
	b.from = bufio.NewReaderSize(&noting{body, &b.broken}, textPiece)
	return b
}

// noting remembers why what it reads from ended early.
type noting struct {
	io.Reader
	err *error
}

func (n *noting) Read(p []byte) (int, error) {
	read, err := n.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		*n.err = err
	}
	return read, err
}

// explain prefers what has become of the body to what is wrong with it then.
func (b *writing) explain(err error) error {
	if _, ours := errors.AsType[frontdoor.Faults](err); ours && b.broken != nil {
		return rest.BadRequest(http.StatusBadRequest, "The body of the request broke off.")
	}
	return err
}

// begin reads up to the content, and returns what reads that.
func (b *writing) begin() (name string, c *content, err error) {
	if first, err := b.next(); err != nil {
		return "", nil, frontdoor.Faults{{Type: "missing", Loc: []any{"body"}, Msg: "Field required"}}
	} else if first != '{' {
		return "", nil, errNoObject
	}
	there, err := b.readUntilContent(true)
	if err != nil {
		return "", nil, err
	}
	if !there { // all else that is wrong is told too
		_, err := b.settings()
		if err == nil {
			err = frontdoor.Faults{{Type: "missing", Loc: []any{"body", "content"}, Msg: "Field required"}}
		}
		return "", nil, err
	}
	c = &content{body: b, text: jsonString{from: b.from}}
	if err := c.look(); err != nil {
		return "", nil, err
	}
	if name, err = b.settings(); err == nil && name == "" {
		err = refused("file", "must come before a content that is larger than %d bytes", maxAhead)
	}
	return name, c, err
}

// settings are the fields that are known so far. The name is empty where that may come.
func (b *writing) settings() (name string, err error) {
	encoding, appending, sudo, leading, trailing := "", false, false, false, false
	err = b.f.read(map[string]any{
		"file": &name, "encoding": &encoding, "append": &appending, "sudo": &sudo,
		"leading_newline": &leading, "trailing_newline": &trailing,
	}, b.f.required()...)
	switch {
	case err != nil:
		return "", err
	case sudo:
		return "", errSudo
	case appending:
		return "", refused("append", "is not served here: read the file and write all of it")
	case leading || trailing:
		return "", refused("leading_newline", "and trailing_newline are not served here; put them into the content")
	case encoding != "" && encoding != encodingText && encoding != encodingRaw && encoding != encodingBase64:
		return "", refused("encoding", "must be utf-8, base64 or raw")
	case name == "" && b.f.empty("file"):
		return "", nil
	}
	return name, checkPath("file", name)
}

// ended is the name under which it is noted that all fields are known.
const ended = ""

func (f fields) required() []string {
	if _, all := f[ended]; all {
		return []string{"file"}
	}
	return nil
}

// encoding that the fields name; base64 says which of the two it is.
func (f fields) encoding() (named, base64 bool) {
	var text string
	_ = json.Unmarshal(f["encoding"], &text) // settings has looked at it
	_, all := f[ended]
	return text != "" || all, text == encodingBase64
}

// readUntilContent reads fields: up to the text of the content, or to the end of the body.
// In the beginning there may be none at all.
func (b *writing) readUntilContent(first bool) (there bool, err error) {
	for ; ; first = false {
		c, err := b.next()
		switch {
		case err != nil:
			return false, errNoJSON
		case c == '}' && (first || len(b.f) > 0):
			b.f[ended] = nil
			if c, err := b.next(); err == nil || !errors.Is(err, io.EOF) {
				_ = c
				return false, errNoJSON // something comes behind it
			}
			return false, nil
		case !first:
			if c != ',' {
				return false, errNoJSON
			}
			if c, err = b.next(); err != nil {
				return false, errNoJSON
			}
		}
		if c != '"' {
			return false, errNoJSON
		}
		name, err := b.name()
		if err != nil {
			return false, err
		}
		if c, err = b.next(); err != nil || c != ':' {
			return false, errNoJSON
		}
		if _, twice := b.f[name]; twice || name == ended || len(b.f) >= maxFields {
			return false, frontdoor.Faults{{Type: "value_error", Loc: []any{"body", frontdoor.Clipped(name)}, Msg: "There are too many fields, or this one twice"}}
		}
		if c, err = b.next(); err != nil {
			return false, errNoJSON
		}
		if name == "content" {
			b.f[name] = nil
			if c != '"' {
				return false, frontdoor.Faults{{Type: "string_type", Loc: []any{"body", name}, Msg: "Input should be a valid string"}}
			}
			return true, nil
		}
		if b.f[name], err = b.value(c); err != nil {
			return false, err
		}
	}
}

// next is the first byte that is no space.
func (b *writing) next() (byte, error) {
	for {
		c, err := b.from.ReadByte()
		if err != nil || !strings.ContainsRune(" \t\r\n", rune(c)) {
			return c, err
		}
	}
}

func (b *writing) name() (string, error) {
	text, err := io.ReadAll(io.LimitReader(&jsonString{from: b.from}, maxField+1))
	if err == nil && len(text) > maxField {
		err = errFieldLong
	}
	return string(text), err
}

var errFieldLong = rest.BadRequest(http.StatusRequestEntityTooLarge, "A field that is not the content is too long.")

// value is one of JSON that begins with a byte.
func (b *writing) value(first byte) (json.RawMessage, error) {
	raw, depth, inText, escaped := []byte{first}, 0, false, false
	for c := first; ; {
		switch {
		case escaped:
			escaped = false
		case inText && c == '\\':
			escaped = true
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		}
		if depth == 0 && !inText && (c == '"' || c == '}' || c == ']' || atEnd(b.from)) {
			break
		}
		if len(raw) > maxField {
			return nil, errFieldLong
		}
		next, err := b.from.ReadByte()
		if err != nil {
			return nil, errNoJSON
		}
		c = next
		raw = append(raw, c)
	}
	if !json.Valid(raw) || !utf8.Valid(raw) {
		return nil, errNoJSON
	}
	return raw, nil
}

// atEnd reports whether a number or a word ends here.
func atEnd(from *bufio.Reader) bool {
	next, err := from.Peek(1)
	return err != nil || strings.ContainsRune(",}] \t\r\n", rune(next[0]))
}

// content reads the content of the file. At its end it reads the fields behind it, and ends
// well if these agree with what it was taken for.
type content struct {
	body *writing
	text jsonString
	// decoded is the content: the text, or what that stands for.
	decoded io.Reader
	base64  bool
	count   int64
	err     error // of our own
}

// look decides what the content is. What is short is known as a whole by then.
func (c *content) look() error {
	ahead, err := io.ReadAll(io.LimitReader(&c.text, maxAhead))
	if err != nil {
		return err
	}
	var all io.Reader = bytes.NewReader(ahead)
	if len(ahead) < maxAhead {
		if err := c.finish(); err != nil {
			return err
		}
	} else {
		all = io.MultiReader(all, &c.text)
	}
	named, is := c.body.f.encoding()
	c.base64 = is || !named && bytes.IndexFunc(ahead, notBase64) < 0
	c.decoded = all
	if c.base64 {
		c.decoded = base64.NewDecoder(base64.StdEncoding, all)
	}
	return nil
}

func notBase64(r rune) bool {
	return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '+' && r != '/' && r != '='
}

// finish reads the fields behind the content.
func (c *content) finish() error {
	if _, done := c.body.f[ended]; done {
		return nil
	}
	again, err := c.body.readUntilContent(false)
	if err == nil && again {
		err = errNoJSON
	}
	if err == nil {
		_, err = c.body.settings()
	}
	return err
}

// Read implements io.Reader.
func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.decoded.Read(p)
	if c.count += int64(n); c.count > maxFile {
		c.err = rest.BadRequest(http.StatusRequestEntityTooLarge, "The file is larger than 100 MiB.")
		return 0, c.err
	}
	if err == nil {
		return n, nil
	}
	var corrupt base64.CorruptInputError
	switch {
	case errors.As(err, &corrupt), c.base64 && errors.Is(err, io.ErrUnexpectedEOF):
		c.err = refused("content", "is not what base64 makes of anything")
	case !errors.Is(err, io.EOF):
		c.err = err
	default:
		c.err = c.agree()
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, io.EOF
}

// agree looks whether the content is what the fields behind it say.
func (c *content) agree() error {
	if err := c.finish(); err != nil {
		return err
	}
	if _, is := c.body.f.encoding(); is != c.base64 {
		return refused("encoding", "must come before a content of more than %d bytes that looks like another one", maxAhead)
	}
	return nil
}

// refusal is why the content has not ended, if that is the fault of the request.
func (c *content) refusal() error { return c.err }
