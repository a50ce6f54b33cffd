package deerflow

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

func (d *Door) registerFiles(base string) {
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/file/read"}, d.readFile)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/file/write"}, d.writeFile)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/file/find"}, d.findFiles)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/file/list"}, d.listFiles)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/file/grep"}, d.grepFiles)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/file/download", AnyQuery: true}, d.download)
}

// Bounds of a request about files.
const (
	// maxFile bounds a file that is read or written, in bytes: DeerFlow's uploads are half of
	// it.
	maxFile  = 100 << 20
	maxPath  = 4096
	anyDepth = 256
	// maxListing bounds a list, and maxListingBytes the paths in it together.
	maxListing      = 20_000
	maxListingBytes = 8 << 20
	maxPattern      = 4096
	usualMatches    = 100
	maxMatches      = 10_000
	// textPiece is how much of a text is looked at, and answered, at once.
	textPiece = 64 << 10
)

// checkPath refuses what is no absolute path. Where it leads is up to the provider, which
// lets it lead to nothing that programs of the sandbox could not reach themselves.
func checkPath(field, name string) error {
	switch {
	case !path.IsAbs(name):
		return refused(field, "must be an absolute path")
	case len(name) > maxPath || strings.ContainsRune(name, 0) || !utf8.ValidString(name):
		return refused(field, "must have at most %d bytes of UTF-8, none of them NUL", maxPath)
	}
	return nil
}

// readFile answers a text, or some of its lines. It streams.
func (d *Door) readFile(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	f, err := readFields(c.Body)
	if err != nil {
		return err
	}
	var (
		name       string
		first, end int64 = 0, math.MaxInt32
		sudo       bool
	)
	if err := f.read(map[string]any{"file": &name, "start_line": &first, "end_line": &end, "sudo": &sudo}, "file"); err != nil {
		return err
	}
	switch {
	case sudo:
		return errSudo
	case first < 0 || first > math.MaxInt32:
		return refused("start_line", "must be 0 at least")
	case end < first:
		return refused("end_line", "must not be less than start_line")
	}
	if err := checkPath("file", name); err != nil {
		return err
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	return lending.ReadFile(r.Context(), d.instances, c.Tenant, info.ID.String(), sdk.ReadFileRequest{Path: name}, func(file sdk.FileInfo, content io.Reader) error {
		if file.Size > maxFile {
			return rest.BadRequest(http.StatusRequestEntityTooLarge, "The file is larger than 100 MiB.")
		}
		lines := frontdoor.NewLines(content, int(first), int(min(end, math.MaxInt32)-first))
		return sendText(w, lines, name)
	})
}

var errSudo = refused("sudo", "is not served here: all programs of a sandbox have one user")

// sendText answers with a text as the content of a file. What is no text is refused before
// the answer begins if that shows in its first piece, and cuts it off later: a client that
// appends to a file reads it and writes all of it.
func sendText(w http.ResponseWriter, text io.Reader, name string) error {
	piece := make([]byte, textPiece)
	kept, begun := 0, false
	for {
		n, err := io.ReadFull(text, piece[kept:])
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		all := piece[:kept+n]
		whole := all
		if !ended {
			whole = lending.WholeRunes(all)
		}
		if !utf8.Valid(whole) {
			return refused("file", "is no text in UTF-8; download it")
		}
		if !begun {
			w.Header().Set("Content-Type", "application/json")
			if _, err := io.WriteString(w, `{"success":true,"message":"`+done+`","data":{"content":"`); err != nil {
				return lending.Unheard{Err: err}
			}
			begun = true
		}
		escaped, err := rest.EncodeJSON(string(whole))
		if err != nil {
			return err
		}
		if _, err := w.Write(escaped[1 : len(escaped)-1]); err != nil {
			return lending.Unheard{Err: err}
		}
		if ended {
			break
		}
		kept = copy(piece, all[len(whole):])
	}
	rest, err := rest.EncodeJSON(name)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, `","file":`+string(rest)+`},"hint":null}`); err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

type found struct {
	Path  string   `json:"path"`
	Files []string `json:"files"`
}

// findFiles finds what is no directory by a pattern for its path below another one.
func (d *Door) findFiles(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	f, err := readFields(c.Body)
	if err != nil {
		return err
	}
	var name, pattern string
	if err := f.read(map[string]any{"path": &name, "glob": &pattern}, "path", "glob"); err != nil {
		return err
	}
	if err := checkPath("path", name); err != nil {
		return err
	}
	if _, err := glob.Compile(pattern); err != nil {
		return refused("glob", "%s", err.Error())
	}
	answered := found{name, []string{}}
	err = d.walk(r.Context(), c, name, pattern, anyDepth, func(at string, info sdk.FileInfo) {
		if info.Type != sdk.FileDirectory {
			answered.Files = append(answered.Files, at)
		}
	})
	if err != nil {
		return err
	}
	return answer(w, enveloped(answered))
}

// errListFull ends a list that has grown too long.
var errListFull = rest.BadRequest(http.StatusRequestEntityTooLarge, "There are more files than one answer holds; ask for less of them.")

// walk tells what is below a directory, in the order of paths, which begin as the client has
// written it.
func (d *Door) walk(ctx context.Context, c rest.Call[rest.Raw], name, pattern string, depth int, tell func(at string, info sdk.FileInfo)) error {
	info, err := d.of(ctx, c.Path["sandbox"])
	if err != nil {
		return err
	}
	return lending.Use(ctx, d.instances, c.Tenant, info.ID.String(), sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		root, err := files.StatFile(ctx, instanceID, path.Clean(name))
		if err != nil {
			return err
		}
		if root.Type != sdk.FileDirectory {
			return refused("path", "is no directory")
		}
		size := 0
		req := sdk.ListFilesRequest{InstanceID: instanceID, Path: root.Path, Depth: depth, Glob: pattern, Limit: maxListing}
		truncated, err := files.ListFiles(ctx, req, func(infos []sdk.FileInfo) error {
			for _, one := range infos {
				at := path.Join(name, below(root.Path, one.Path))
				if size += len(at); size > maxListingBytes {
					return lending.Unheard{Err: errListFull}
				}
				tell(at, one)
			}
			return nil
		})
		if err == nil && truncated {
			err = lending.Unheard{Err: errListFull}
		}
		return err
	})
}

// below is the part of a path that is below another one.
func below(root, name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, strings.TrimSuffix(root, "/")), "/")
}

type fileEntry struct {
	Name        string `json:"name"`
	Path        string `json:"path"`
	IsDirectory bool   `json:"is_directory"`
	Size        int64  `json:"size"`
	ModifiedAt  string `json:"modified_time"`
	Permissions string `json:"permissions"`
	Extension   string `json:"extension"`
}

type listing struct {
	Path           string      `json:"path"`
	Files          []fileEntry `json:"files"`
	TotalCount     int         `json:"total_count"`
	DirectoryCount int         `json:"directory_count"`
	FileCount      int         `json:"file_count"`
}

// listFiles lists what is in a directory. Links are told and not followed.
func (d *Door) listFiles(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	f, err := readFields(c.Body)
	if err != nil {
		return err
	}
	var (
		name              string
		recursive, hidden bool
		depth             int64 = anyDepth
		types             []string
	)
	if err := f.read(map[string]any{"path": &name, "recursive": &recursive, "show_hidden": &hidden, "max_depth": &depth, "file_types": &types}, "path"); err != nil {
		return err
	}
	if err := checkPath("path", name); err != nil {
		return err
	}
	switch {
	case depth < 1:
		return refused("max_depth", "must be 1 at least")
	case len(types) > 0:
		return refused("file_types", "is not served here; find files by a glob")
	case !recursive:
		depth = 1
	}
	list := listing{Path: name, Files: []fileEntry{}}
	err = d.walk(r.Context(), c, name, "", int(min(depth, anyDepth)), func(at string, info sdk.FileInfo) {
		if !hidden && isHidden(below(path.Clean(name), at)) {
			return
		}
		entry := fileEntry{
			Name: path.Base(at), Path: at, IsDirectory: info.Type == sdk.FileDirectory, Size: info.Size,
			ModifiedAt: info.ModifiedAt.UTC().Format(time.RFC3339), Permissions: info.Mode.Perm().String(), Extension: path.Ext(at),
		}
		if list.Files = append(list.Files, entry); entry.IsDirectory {
			list.DirectoryCount++
		} else {
			list.FileCount++
		}
	})
	if err != nil {
		return err
	}
	list.TotalCount = len(list.Files)
	return answer(w, enveloped(list))
}

// isHidden reports whether a name in a path begins with a dot.
func isHidden(name string) bool {
	return slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return strings.HasPrefix(part, ".") })
}

type match struct {
	File string `json:"file"`
	Line int    `json:"line_number"`
	Text string `json:"line_content"`
}

type matches struct {
	Path         string  `json:"path"`
	Pattern      string  `json:"pattern"`
	Matches      []match `json:"matches"`
	Count        int     `json:"match_count"`
	FilesMatched int     `json:"files_matched"`
	Truncated    bool    `json:"truncated"`
}

// grepRequest is what to look for.
type grepRequest struct {
	path, pattern       string
	ignoreCase, literal bool
	include             string
	limit               int
}

func readGrep(body []byte) (grepRequest, error) {
	f, err := readFields(body)
	if err != nil {
		return grepRequest{}, err
	}
	var (
		req              grepRequest
		limit            int64  = usualMatches
		recursive               = true
		size             string // files of all sizes are looked through
		include, exclude []string
		before, after    int64
	)
	err = f.read(map[string]any{
		"path": &req.path, "pattern": &req.pattern, "case_insensitive": &req.ignoreCase, "fixed_strings": &req.literal,
		"max_results": &limit, "recursive": &recursive, "max_file_size": &size, "include": &include, "exclude": &exclude,
		"context_before": &before, "context_after": &after,
	}, "path", "pattern")
	if err != nil {
		return req, err
	}
	switch {
	case req.pattern == "" || len(req.pattern) > maxPattern:
		return req, refused("pattern", "must have 1 to %d bytes", maxPattern)
	case limit < 1:
		return req, refused("max_results", "must be 1 at least")
	case len(include) > 1:
		return req, refused("include", "must be one glob at most; write {a,b} for several")
	case len(exclude) > 0:
		return req, refused("exclude", "is not served here")
	case before != 0 || after != 0:
		return req, refused("context_before", "and context_after are not served here; read the lines around a match")
	case len(include) == 1:
		req.include = include[0]
	}
	switch {
	case req.include != "" && !strings.Contains(req.include, "/") && recursive:
		req.include = "**/" + req.include
	case req.include == "" && !recursive:
		req.include = "*"
	}
	if _, err := glob.Compile(req.include); err != nil {
		return req, refused("include", "%s", err.Error())
	}
	req.limit = int(min(limit, maxMatches))
	return req, checkPath("path", req.path)
}

// grepFiles finds lines of texts.
func (d *Door) grepFiles(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	req, err := readGrep(c.Body)
	if err != nil {
		return err
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	answered := matches{Path: req.path, Pattern: req.pattern, Matches: []match{}}
	last := ""
	err = lending.Use(r.Context(), d.instances, c.Tenant, info.ID.String(), sdk.CapabilityFileSearch, func(ctx context.Context, files sdk.FileSearcher, instanceID string) error {
		answered.Truncated, err = files.SearchFiles(ctx, sdk.SearchFilesRequest{
			InstanceID: instanceID, Path: path.Clean(req.path), Pattern: req.pattern, Literal: req.literal, IgnoreCase: req.ignoreCase,
			Glob: req.include, Limit: req.limit,
		}, func(found []sdk.FileMatch) error {
			for _, one := range found {
				answered.Matches = append(answered.Matches, match{one.Path, one.Line, one.Text})
				if one.Path != last {
					last, answered.FilesMatched = one.Path, answered.FilesMatched+1
				}
			}
			return nil
		})
		return err
	})
	if err != nil {
		return err
	}
	answered.Count = len(answered.Matches)
	return answer(w, enveloped(answered))
}

// download answers with a file, or the range of its bytes that is asked for.
func (d *Door) download(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return err
	}
	name := query.Get("path")
	if !query.Has("path") {
		return frontdoor.Faults{{Type: "missing", Loc: []any{"query", "path"}, Msg: "Field required"}}
	}
	if err := checkPath("path", name); err != nil {
		return err
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	return lending.ServeFile(w, r, d.instances, c.Tenant, info.ID.String(), name)
}
