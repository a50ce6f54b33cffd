package localfiles

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/filetext"
)

// ReplaceInFiles implements sdk.FileSearcher.
func (f *Files) ReplaceInFiles(ctx context.Context, req sdk.ReplaceInFilesRequest) ([]sdk.FileReplacement, error) {
	if err := filetext.CheckReplace(req); err != nil {
		return nil, err
	}
	places := make([]place, 0, len(req.Paths))
	for _, name := range req.Paths { // before anything is changed
		at, err := f.place(req.InstanceID, "paths", name)
		if err != nil {
			return nil, err
		}
		places = append(places, at)
	}
	var replaced []sdk.FileReplacement
	for _, at := range places {
		count, err := at.replace(ctx, []byte(req.Old), []byte(req.New))
		if err != nil {
			return nil, err
		}
		replaced = append(replaced, sdk.FileReplacement{Path: at.String(), Count: count})
	}
	return replaced, nil
}

// replace replaces a text in a file. One that does not have it is not touched.
func (at place) replace(ctx context.Context, before, after []byte) (int64, error) {
	dir, base, err := at.parent(false)
	if err != nil {
		return 0, err
	}
	defer dir.close()
	file, i, err := at.openRegular(dir, base)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	d, err := at.newDraft(dir)
	defer d.discard()
	if err != nil {
		return 0, err
	}
	count, err := replaceAll(ctx, d, untilDone{ctx, io.LimitReader(file, i.size)}, before, after)
	if err != nil || count == 0 {
		return 0, at.explain(err)
	}
	return count, d.commit(base, i.mode)
}

// replaceAll copies from one to the other with each before replaced by after,
// and counts. It holds little more than before in memory.
func replaceAll(ctx context.Context, to io.Writer, from io.Reader, before, after []byte) (count int64, err error) {
	buf := make([]byte, 0, max(2*len(before), copyBytes))
	for ended := false; !ended; {
		n, err := io.ReadFull(from, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			ended = true
		case err != nil:
			return count, err
		}
		rest := buf
		for i := bytes.Index(rest, before); i >= 0; i = bytes.Index(rest, before) {
			if err := ctx.Err(); err != nil { // what takes the place may be long
				return count, err
			}
			if _, err := to.Write(rest[:i]); err != nil {
				return count, err
			}
			if _, err := to.Write(after); err != nil {
				return count, err
			}
			rest, count = rest[i+len(before):], count+1
		}
		// What may be the beginning of before stays for the next round.
		keep := min(len(rest), len(before)-1)
		if ended {
			keep = 0
		}
		if _, err := to.Write(rest[:len(rest)-keep]); err != nil {
			return count, err
		}
		buf = buf[:copy(buf, rest[len(rest)-keep:])]
	}
	return count, nil
}
