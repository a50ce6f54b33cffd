package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

type writeFileArguments struct {
	Session string `json:"session" jsonschema:"begun if there is none of this name"`
	Path    string `json:"path" jsonschema:"absolute, or below /workspace"`
	Content string `json:"content"`
	Base64  bool   `json:"base64,omitempty" jsonschema:"content is base64"`
}

type readFileArguments struct {
	Session string `json:"session"`
	Path    string `json:"path"`
	Offset  int64  `json:"offset,omitempty" jsonschema:"byte to begin at"`
	Limit   int64  `json:"limit,omitempty" jsonschema:"bytes, at most 24000"`
}

type listFilesArguments struct {
	Session string `json:"session"`
	Path    string `json:"path,omitempty" jsonschema:"default /workspace"`
	Glob    string `json:"glob,omitempty" jsonschema:"such as **/*.py; looks into directories"`
}

type editFileArguments struct {
	Session string `json:"session"`
	Path    string `json:"path"`
	Old     string `json:"old" jsonschema:"plain text, replaced wherever it occurs"`
	New     string `json:"new"`
}

type searchFilesArguments struct {
	Session    string `json:"session"`
	Pattern    string `json:"pattern" jsonschema:"RE2 regular expression, line by line"`
	Path       string `json:"path,omitempty" jsonschema:"default /workspace"`
	Glob       string `json:"glob,omitempty" jsonschema:"which files"`
	Literal    bool   `json:"literal,omitempty" jsonschema:"pattern is plain text"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
}

func (t *tools) addFiles() {
	add(t, "write_file", "Write a file", "Write a file in a session, and the directories above it.", overwrites, call.writeFile)
	add(t, "read_file", "Read a file", "Read a file of a session, in parts if it is long. PNG and JPEG are shown.", readOnly, call.readFile)
	add(t, "list_files", "List files", "List a directory of a session.", readOnly, call.listFiles)
	add(t, "edit_file", "Edit a file", "Replace a text in a file of a session.", changes, call.editFile)
	add(t, "search_files", "Search files", "Find lines in the files of a session.", readOnly, call.searchFiles)
}

func (c call) writeFile(ctx context.Context, in writeFileArguments) (*mcp.CallToolResult, error) {
	content := []byte(in.Content)
	if in.Base64 {
		var err error
		if content, err = base64.StdEncoding.DecodeString(in.Content); err != nil {
			return nil, refused(sdk.CodeInvalidRequest, "content: is no base64.")
		}
	}
	if in.Path == "" {
		return nil, refused(sdk.CodeInvalidRequest, "path: must not be empty.")
	}
	instance, err := c.begun(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	file, err := c.Client.WriteFile(ctx, instance.ID, url.Values{"path": {in.Path}, "parents": {"true"}}, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return answered(fmt.Sprintf("%d bytes are in %s\n", file.Size, file.Path), file), nil
}

// maxRead is how much of a file one answer has, in bytes.
const maxRead = 24_000

// maxImage is how large a file may be that is shown as a figure.
const maxImage = maxFigureBytes

// part is a part of a file.
type part struct {
	Path string `json:"path"`
	// Size is that of the whole file, -1 where it is not known.
	Size    int64  `json:"size"`
	Offset  int64  `json:"offset"`
	Next    int64  `json:"next_offset,omitempty"`
	Content string `json:"content,omitempty"`
	Base64  []byte `json:"base64,omitempty"`
}

func (c call) readFile(ctx context.Context, in readFileArguments) (*mcp.CallToolResult, error) {
	if in.Offset < 0 || in.Limit < 0 {
		return nil, refused(sdk.CodeInvalidRequest, "offset, limit: must not be below 0.")
	}
	if in.Path == "" {
		return nil, refused(sdk.CodeInvalidRequest, "path: must not be empty.")
	}
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	limit := int64(maxRead)
	if in.Limit > 0 {
		limit = min(limit, in.Limit)
	}
	content, size, err := c.read(ctx, instance.ID, in.Path, in.Offset, limit)
	if err != nil {
		return nil, err
	}
	if mimeType := http.DetectContentType(content); in.Offset == 0 && (mimeType == "image/png" || mimeType == "image/jpeg") && size <= maxImage {
		if content, _, err = c.read(ctx, instance.ID, in.Path, 0, maxImage); err != nil {
			return nil, err
		}
		result := answered(fmt.Sprintf("%s, %d bytes, %s\n", in.Path, size, mimeType), part{Path: in.Path, Size: size})
		result.Content = append(result.Content, &mcp.ImageContent{MIMEType: mimeType, Data: content})
		return result, nil
	}
	return partOf(in.Path, content, in.Offset, size), nil
}

// partOf shows a part of a file. What is no text is shown in base64.
func partOf(path string, content []byte, offset, size int64) *mcp.CallToolResult {
	for {
		p := part{Path: path, Size: size, Offset: offset}
		if whole := wholeRunes(content); utf8.Valid(whole) && (len(whole) > 0 || len(content) == 0) {
			content = whole
			p.Content = string(content)
		} else {
			p.Base64 = content
		}
		end := offset + int64(len(content))
		if end < size {
			p.Next = end
		}
		text := p.Content
		if p.Base64 != nil {
			text = "base64: " + base64.StdEncoding.EncodeToString(p.Base64)
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		if p.Next > 0 {
			text += fmt.Sprintf("[bytes %d to %d of %d; go on with offset %d]\n", offset, end, size, end)
		}
		if text == "" {
			text = "[nothing there: the file has " + strconv.FormatInt(size, 10) + " bytes]\n"
		}
		// Control characters take six times their room there.
		if encoded, err := json.Marshal(p); err == nil && len(encoded) <= maxStructured && len(text) <= maxText {
			return answered(text, p)
		}
		content = content[:len(content)/2]
	}
}

// read reads a part of a file, and how large that is.
func (c call) read(ctx context.Context, instance, path string, offset, limit int64) (content []byte, size int64, err error) {
	resp, err := c.Client.With("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+limit-1)).Do(ctx, client.Request{
		Method: http.MethodGet, Path: "/api/v1/instances/" + url.PathEscape(instance) + "/files/content", Query: url.Values{"path": {path}}, Accept: "application/octet-stream",
	})
	if problem, ok := errors.AsType[*client.Problem](err); ok && problem.Status == http.StatusRequestedRangeNotSatisfiable {
		file, err := c.Client.StatFile(ctx, instance, path)
		return nil, file.Size, err
	}
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	size = resp.ContentLength
	if resp.StatusCode == http.StatusPartialContent {
		_, total, _ := strings.Cut(resp.Header.Get("Content-Range"), "/")
		if size, err = strconv.ParseInt(total, 10, 64); err != nil {
			return nil, 0, errBrokenOff
		}
	} else if _, err := io.CopyN(io.Discard, resp.Body, offset); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("the file broke off: %w", err)
	}
	content, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, 0, fmt.Errorf("the file broke off: %w", err)
	}
	return content, max(size, offset+int64(len(content))), nil
}

func (c call) listFiles(ctx context.Context, in listFilesArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	query := url.Values{}
	setGiven(query, "path", in.Path)
	setGiven(query, "glob", in.Glob)
	list, err := c.Client.ListFiles(ctx, instance.ID, query)
	if err != nil {
		return nil, err
	}
	structured, shown := fitting(len(list.Files), func(count int) any {
		return client.FileList{Files: list.Files[:count], Truncated: list.Truncated || count < len(list.Files)}
	})
	var text strings.Builder
	for _, file := range list.Files[:shown] {
		switch file.Type {
		case "directory":
			fmt.Fprintf(&text, "%s/\n", file.Path)
		case "symlink":
			fmt.Fprintf(&text, "%s -> %s\n", file.Path, file.Target)
		default:
			fmt.Fprintf(&text, "%s (%d bytes)\n", file.Path, file.Size)
		}
	}
	writeEnd(&text, shown, list.Truncated || shown < len(list.Files))
	return answered(text.String(), structured), nil
}

func writeEnd(text *strings.Builder, shown int, more bool) {
	if shown == 0 {
		text.WriteString("nothing found\n")
	}
	if more {
		text.WriteString("There is more: narrow it down with path or glob.\n")
	}
}

func setGiven(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

func (c call) editFile(ctx context.Context, in editFileArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	list, err := c.Client.ReplaceInFiles(ctx, instance.ID, client.ReplaceInFilesRequest{Paths: []string{in.Path}, Old: in.Old, New: in.New})
	if err != nil {
		return nil, err
	}
	if len(list.Files) == 0 || list.Files[0].Count == 0 {
		return nil, refused(sdk.CodeInvalidRequest, "old: does not occur in %s, and nothing was changed. Read the file again.", shortened(in.Path, 300))
	}
	return answered(fmt.Sprintf("%d replaced in %s\n", list.Files[0].Count, list.Files[0].Path), list), nil
}

// maxMatches is how many lines a search finds.
const maxMatches = 200

func (c call) searchFiles(ctx context.Context, in searchFilesArguments) (*mcp.CallToolResult, error) {
	instance, err := c.found(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	list, err := c.Client.SearchFiles(ctx, instance.ID, client.SearchFilesRequest{
		Pattern: in.Pattern, Path: in.Path, Glob: in.Glob, Literal: in.Literal, IgnoreCase: in.IgnoreCase, Limit: maxMatches,
	})
	if err != nil {
		return nil, err
	}
	structured, shown := fitting(len(list.Matches), func(count int) any {
		return client.FileMatchList{Matches: list.Matches[:count], Truncated: list.Truncated || count < len(list.Matches)}
	})
	var text strings.Builder
	for _, match := range list.Matches[:shown] {
		fmt.Fprintf(&text, "%s:%d: %s\n", match.Path, match.Line, match.Text)
	}
	writeEnd(&text, shown, list.Truncated || shown < len(list.Matches))
	return answered(text.String(), structured), nil
}
