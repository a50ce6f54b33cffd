package guestfiles

import (
	"bytes"
	"compress/zlib"
	"context"
	"io"
	"path"
	"path/filepath"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/filetext"
)

const (
	// searchBytes is after how many bytes of lines an answer ends.
	searchBytes = 1 << 20
	// textSeconds is how long a search or a replacement goes on in one call.
	textSeconds = 5
)

// SearchFiles implements sdk.FileSearcher. The lines that may match come from the sandbox,
// and are matched here.
func (c Calls) SearchFiles(ctx context.Context, req sdk.SearchFilesRequest, found func([]sdk.FileMatch) error) (truncated bool, err error) {
	search, err := filetext.NewSearch(req, found)
	if err != nil {
		return false, err
	}
	ask := Request{
		Op: Search, Path: req.Path, Inside: !search.Selects(path.Base(path.Clean(req.Path))),
		Needles: search.Needles(), Endings: search.Endings(), Most: searchBytes, Seconds: textSeconds,
	}
	skipped := false
	for err == nil {
		var answer Answer
		if answer, err = c.store.Do(ctx, req.InstanceID, ask); err != nil {
			return false, err
		}
		skipped = skipped || answer.Skipped
		if err = sift(ctx, search, answer); len(answer.Cursor) == 0 {
			break
		}
		ask.Cursor = answer.Cursor
	}
	truncated, err = search.End(err)
	return truncated || err == nil && skipped, err
}

// errGarbled says that what the sandbox told is not what its program tells.
var errGarbled = sdk.Errorf(sdk.CodeUnavailable, "the sandbox told of its files what nobody understands")

// Kinds of records. A file is a byte for its kind, four for the length of its path, and that
// path, relative to the one that was asked for. A line of it is its kind, eight bytes for its
// number, four for its length, and the line. Numbers are big-endian.
const (
	recordFile = 0
	recordLine = 1
)

// sift gives a search the lines of an answer, whose Data are records as zlib packs them.
// Code in the sandbox may have written them.
func sift(ctx context.Context, search *filetext.Search, answer Answer) error {
	packed, err := zlib.NewReader(bytes.NewReader(answer.Data))
	if err != nil {
		return errGarbled
	}
	records := bytes.NewBuffer(nil)
	// There is enough as soon as a record has come to searchBytes, or a bit more.
	const most = searchBytes + filetext.LineBytes + 2*maxPath
	if n, err := io.Copy(records, io.LimitReader(packed, most)); err != nil || n == most {
		return errGarbled
	}
	name, selected := answer.File.Path, answer.File.Type != string(sdk.FileDirectory)
	for records.Len() > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		kind, _ := records.ReadByte()
		number, whole := uint64(1), true
		if kind == recordLine {
			number, whole = take(records, 8)
		}
		size, sized := take(records, 4)
		length := int(size)
		switch text := records.Next(length); {
		case !whole, !sized, len(text) != length, number == 0:
			return errGarbled
		case kind == recordFile && length == 0: // the path that was asked for
		case kind == recordFile && length < maxPath && filepath.IsLocal(string(text)):
			name, selected = path.Join(answer.File.Path, string(text)), search.Selects(string(text))
		case kind == recordLine && length <= filetext.LineBytes && number < 1<<53:
			if !selected {
				continue
			}
			if err := search.Line(ctx, name, int(number), text); err != nil {
				return err
			}
		default:
			return errGarbled
		}
	}
	return nil
}

// take reads a number of so many bytes, unless it was cut.
func take(records *bytes.Buffer, size int) (number uint64, whole bool) {
	text := records.Next(size)
	for _, b := range text {
		number = number<<8 | uint64(b)
	}
	return number, len(text) == size
}

// ReplaceInFiles implements sdk.FileSearcher.
func (c Calls) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) (replaced []sdk.FileReplacement, err error) {
	if err := filetext.CheckReplace(req); err != nil {
		return nil, err
	}
	for left := req.Paths; len(left) > 0; {
		answer, err := c.store.Do(ctx, req.InstanceID, Request{
			Op: Replace, Path: ".", Paths: left, Old: []byte(req.Old), New: []byte(req.New), Seconds: textSeconds,
		})
		switch n := len(answer.Files); {
		case err != nil:
			return nil, err
		case n == 0 || n > len(left):
			return nil, errGarbled
		case answer.Failed != nil:
			return nil, sdk.FieldErrorf(answer.Failed.code(), "paths", "%s: %s", answer.Files[n-1].Path, answer.Failed.Message)
		}
		for _, f := range answer.Files {
			replaced = append(replaced, sdk.FileReplacement{Path: f.Path, Count: f.Count})
		}
		left = left[len(answer.Files):]
	}
	return replaced, nil
}
