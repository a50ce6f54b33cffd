package opensandbox

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/glob"
)

// registerFiles registers the routes of files and directories.
func (d execd) registerFiles(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/files/info", AnyQuery: true}, d.fileInfos)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/files", AnyQuery: true}, d.deleteFiles)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/files/permissions"}, d.setPermissions)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/files/mv"}, d.moveFiles)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/files/search", AnyQuery: true}, d.searchFiles)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/files/replace", AnyQuery: true}, d.replaceInFiles)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/files/upload"}, d.upload)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/files/download", AnyQuery: true}, d.download)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/directories/list", AnyQuery: true}, d.listDirectory)
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/directories"}, d.makeDirectories)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/directories", AnyQuery: true}, d.deleteDirectories)
}

// fileInfo describes a file. Whose it is, providers do not tell, and the clients need the
// fields: owner and group are empty, which permission takes back.
type fileInfo struct {
	Path       string    `json:"path"`
	Type       string    `json:"type"`
	Size       int64     `json:"size"`
	ModifiedAt time.Time `json:"modified_at"`
	CreatedAt  time.Time `json:"created_at"`
	Owner      string    `json:"owner"`
	Group      string    `json:"group"`
	Mode       int       `json:"mode"`
}

// fileInfoOf describes a file. The time of its creation is not known: it is no later than
// that of its change.
func fileInfoOf(info sdk.FileInfo) fileInfo {
	at := info.ModifiedAt.UTC()
	return fileInfo{Path: info.Path, Type: string(info.Type), Size: info.Size, ModifiedAt: at, CreatedAt: at, Mode: decimalMode(info.Mode)}
}

// decimalMode writes permission bits as OpenSandbox does: 755 is the number with the
// digits that the octal number has.
func decimalMode(mode fs.FileMode) int {
	n, _ := strconv.Atoi(strconv.FormatUint(uint64(mode.Perm()), 8))
	return n
}

// modeOf reads such a number; 0 for none.
func modeOf(n int) (fs.FileMode, error) {
	bits, err := strconv.ParseUint(strconv.Itoa(n), 8, 32)
	if err != nil || bits > 0o777 {
		return 0, refused("mode", "must have three octal digits, such as 755")
	}
	return fs.FileMode(bits), nil
}

// permission is what a file or directory is to have.
type permission struct {
	Mode  int    `json:"mode"`
	Owner string `json:"owner"`
	Group string `json:"group"`
}

// check refuses what cannot be had, and returns the mode; 0 if none is given. Upstream
// passes over owners that it does not know; here nobody would learn of it.
func (p permission) check() (fs.FileMode, error) {
	switch {
	case p.Owner != "":
		return 0, refused("owner", "is not served here: all files of a sandbox belong to its one user; leave it out")
	case p.Group != "":
		return 0, refused("group", "is not served here: all files of a sandbox belong to its one user; leave it out")
	default:
		return modeOf(p.Mode)
	}
}

// modesOf reads what the files or directories of a body are to have. None of them is
// otherwise.
func modesOf(body []byte, otherwise fs.FileMode) (map[string]fs.FileMode, error) {
	var permissions map[string]permission
	if err := readMap(body, &permissions); err != nil {
		return nil, err
	}
	modes := map[string]fs.FileMode{}
	for _, name := range slices.Sorted(maps.Keys(permissions)) {
		mode, err := permissions[name].check()
		if err == nil && mode == 0 {
			mode = otherwise
		}
		if err == nil && mode == 0 {
			err = refused("mode", "is required")
		}
		if err != nil {
			return nil, err
		}
		modes[name] = mode
	}
	return modes, nil
}

// pathOf is what a path of a client means. Relative ones begin at /workspace, as with
// every provider, and so does ~: it is where the sandbox's own user works.
func pathOf(name string) string {
	if name == "~" {
		return "."
	}
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		return path.Join(".", rest)
	}
	return name
}

// files lends the files of a sandbox.
func files[T any](ctx context.Context, d execd, who tenant.Tenant, id string, capability sdk.Capability, use func(ctx context.Context, files T, instanceID string) error) error {
	info, err := d.sandbox(ctx, who, id)
	if err != nil {
		return err
	}
	return lending.Use(ctx, d.instances, who, info.ID.String(), capability, use)
}

// Bounds of a request about files.
const (
	maxPaths   = 1000
	maxListing = 10_000
	anyDepth   = 256
	// maxListingBytes bounds the paths of a list together.
	maxListingBytes = 8 << 20
)

// pathsOf are those in a query.
func pathsOf(rawQuery string) ([]string, error) {
	query, err := frontdoor.Query(rawQuery)
	if err != nil {
		return nil, refused("path", "is malformed")
	}
	paths := query["path"]
	if len(paths) > maxPaths {
		return nil, refused("path", "must be given %d times at most", maxPaths)
	}
	if slices.Contains(paths, "") {
		return nil, refused("path", "must not be empty")
	}
	return paths, nil
}

func (d execd) fileInfos(ctx context.Context, c rest.Call[rest.None]) (int, map[string]fileInfo, error) {
	paths, err := pathsOf(c.RawQuery)
	if err != nil {
		return 0, nil, err
	}
	infos := map[string]fileInfo{}
	err = files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		for _, name := range paths {
			info, err := files.StatFile(ctx, instanceID, pathOf(name))
			if err != nil {
				return err
			}
			infos[name] = fileInfoOf(info)
		}
		return nil
	})
	return http.StatusOK, infos, err
}

func isNotFound(err error) bool { return errors.Is(err, &sdk.Error{Code: sdk.CodeNotFound}) }

// deleteFiles removes files. One that is not there is removed already.
func (d execd) deleteFiles(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	return d.remove(ctx, c, func(info sdk.FileInfo) error {
		if info.Type == sdk.FileDirectory {
			return refused("path", "%s is a directory; remove it as such", info.Path)
		}
		return nil
	})
}

// deleteDirectories removes directories with all that is in them, and what is no directory
// too, as rm -rf does.
func (d execd) deleteDirectories(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	return d.remove(ctx, c, func(sdk.FileInfo) error { return nil })
}

// remove looks at all before it removes the first.
func (d execd) remove(ctx context.Context, c rest.Call[rest.Raw], check func(sdk.FileInfo) error) (int, rest.None, error) {
	paths, err := pathsOf(c.RawQuery)
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusOK, rest.None{}, files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		var there []sdk.FileInfo
		for _, name := range paths {
			info, err := files.StatFile(ctx, instanceID, pathOf(name))
			if isNotFound(err) {
				continue
			}
			if err == nil {
				err = check(info)
			}
			if err != nil {
				return err
			}
			there = append(there, info)
		}
		for _, info := range there {
			if err := files.RemoveFile(ctx, instanceID, info.Path, info.Type == sdk.FileDirectory); err != nil && !isNotFound(err) {
				return err
			}
		}
		return nil
	})
}

func (d execd) setPermissions(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	modes, err := modesOf(c.Body, 0)
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusOK, rest.None{}, files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFileMode, func(ctx context.Context, files sdk.FileModeSetter, instanceID string) error {
		for _, name := range slices.Sorted(maps.Keys(modes)) {
			if _, err := files.SetFileMode(ctx, instanceID, pathOf(name), modes[name]); err != nil {
				return err
			}
		}
		return nil
	})
}

// readMap reads a body that leads from paths to something.
func readMap[T any](body []byte, into *map[string]T) error {
	if err := json.Unmarshal(body, into); err != nil || *into == nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body must be an object that leads from paths to what the API has for each.")
	}
	if len(*into) > maxPaths {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body must have %d paths at most.", maxPaths)
	}
	if _, empty := (*into)[""]; empty {
		return sdk.Errorf(sdk.CodeInvalidRequest, "A path must not be empty.")
	}
	if name := unknownField(body, reflect.TypeOf(into)); name != "" {
		return notServed(name)
	}
	return nil
}

func (d execd) moveFiles(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	var moves []struct {
		Src  string `json:"src"`
		Dest string `json:"dest"`
	}
	if err := json.Unmarshal(c.Body, &moves); err != nil || len(moves) > maxPaths {
		return 0, rest.None{}, sdk.Errorf(sdk.CodeInvalidRequest, "The body must be an array of at most %d objects with src and dest.", maxPaths)
	}
	if name := unknownField(json.RawMessage(c.Body), reflect.TypeOf(moves)); name != "" {
		return 0, rest.None{}, notServed(name)
	}
	for _, m := range moves {
		if m.Src == "" || m.Dest == "" {
			return 0, rest.None{}, refused("src", "and dest are required")
		}
	}
	return http.StatusOK, rest.None{}, files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		for _, m := range moves {
			from, to := pathOf(m.Src), path.Clean(pathOf(m.Dest))
			if _, err := files.StatFile(ctx, instanceID, from); err != nil {
				return err
			}
			if err := ensureDirectory(ctx, files, instanceID, path.Dir(to), 0); err != nil {
				return err
			}
			if _, err := files.MoveFile(ctx, sdk.MoveFileRequest{InstanceID: instanceID, From: from, To: to}); err != nil {
				return err
			}
		}
		return nil
	})
}

// errListFull ends a list that has grown too long.
var errListFull = sdk.Errorf(sdk.CodeInvalidRequest, "There are more than %d files, or their paths are too long; ask for less of them.", maxListing)

// list collects what is below a directory, as a walk comes across it: names in their
// order, and a directory before what is in it.
func list(ctx context.Context, files sdk.Files, req sdk.ListFilesRequest, keep func(sdk.FileInfo) bool) ([]fileInfo, error) {
	all, size := []fileInfo{}, 0
	req.Limit = maxListing
	truncated, err := files.ListFiles(ctx, req, func(infos []sdk.FileInfo) error {
		for _, info := range infos {
			if !keep(info) {
				continue
			}
			if size += len(info.Path); size > maxListingBytes {
				return errListFull
			}
			all = append(all, fileInfoOf(info))
		}
		return nil
	})
	if err == nil && truncated {
		err = errListFull
	}
	slices.SortFunc(all, func(a, b fileInfo) int {
		return slices.Compare(strings.Split(a.Path, "/"), strings.Split(b.Path, "/"))
	})
	return all, err
}

// searchFiles finds what is no directory by its own name, at any depth.
func (d execd) searchFiles(ctx context.Context, c rest.Call[rest.None]) (int, []fileInfo, error) {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil || query.Get("path") == "" {
		return 0, nil, refused("path", "is required")
	}
	pattern := cmp.Or(query.Get("pattern"), "**")
	names, err := glob.Compile(pattern)
	if err != nil {
		return 0, nil, refused("pattern", "%s", err.Error())
	}
	matches := func(info sdk.FileInfo) bool {
		return info.Type != sdk.FileDirectory && names.Match(path.Base(info.Path))
	}
	found := []fileInfo{}
	err = files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		root, err := files.StatFile(ctx, instanceID, pathOf(query.Get("path")))
		if err != nil {
			return err
		}
		if root.Type != sdk.FileDirectory { // a search that begins at a file comes across that alone
			if matches(root) {
				found = append(found, fileInfoOf(root))
			}
			return nil
		}
		req := sdk.ListFilesRequest{InstanceID: instanceID, Path: root.Path, Depth: anyDepth}
		if len(pattern) <= glob.MaxPattern-len(anywhere) {
			req.Glob = anywhere + pattern // what does not match does not count
		}
		found, err = list(ctx, files, req, matches)
		return err
	})
	return http.StatusOK, found, err
}

// anywhere before a pattern makes it one for names at any depth.
const anywhere = "**/"

// replaced says how often a text was replaced in a file.
type replaced struct {
	Count int64 `json:"replacedCount"`
}

const (
	// maxReplaced bounds a text that is replaced, and what comes in its place, in bytes.
	maxReplaced = 1 << 20
	// maxEdited bounds a file in which a text is replaced by reading and writing it,
	// before and afterwards, in bytes.
	maxEdited = 16 << 20
)

// replaceByWriting is for providers that cannot replace a text themselves.
func replaceByWriting(ctx context.Context, files sdk.Files, instanceID, name, old, text string) (replaced, error) {
	info, content, err := files.ReadFile(ctx, sdk.ReadFileRequest{InstanceID: instanceID, Path: name})
	if err != nil {
		return replaced{}, err
	}
	before, err := io.ReadAll(io.LimitReader(content, maxEdited+1))
	if err = errors.Join(err, content.Close()); err != nil {
		return replaced{}, err
	}
	if len(before) > maxEdited {
		return replaced{}, refused("path", "%s is larger than %d bytes, which is as much as can be replaced in here", name, maxEdited)
	}
	count := bytes.Count(before, []byte(old))
	if size := int64(len(before)) + int64(count)*int64(len(text)-len(old)); size > maxEdited {
		return replaced{}, refused("new", "would make %s larger than %d bytes, which is as much as can be replaced in here", name, maxEdited)
	}
	if count > 0 {
		after := bytes.NewReader(bytes.ReplaceAll(before, []byte(old), []byte(text)))
		_, err = files.WriteFile(ctx, sdk.WriteFileRequest{InstanceID: instanceID, Path: info.Path, Mode: info.Mode}, after)
	}
	return replaced{int64(count)}, err
}

func (d execd) replaceInFiles(ctx context.Context, c rest.Call[rest.Raw]) (int, any, error) {
	var body map[string]struct {
		Old string `json:"old"`
		New string `json:"new"`
	}
	if err := readMap(c.Body, &body); err != nil {
		return 0, nil, err
	}
	for _, one := range body {
		switch {
		case one.Old == "":
			return 0, nil, refused("old", "must not be empty")
		case len(one.Old) > maxReplaced:
			return 0, nil, refused("old", "must have at most %d bytes", maxReplaced)
		case len(one.New) > maxReplaced:
			return 0, nil, refused("new", "must have at most %d bytes", maxReplaced)
		}
	}
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return 0, nil, refused("verbose", "is malformed")
	}
	counts := map[string]replaced{}
	err = files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFileSearch, func(ctx context.Context, files sdk.FileSearcher, instanceID string) error {
		for _, name := range slices.Sorted(maps.Keys(body)) {
			done, err := files.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{InstanceID: instanceID, Paths: []string{pathOf(name)}, Old: body[name].Old, New: body[name].New})
			if err != nil {
				return err
			}
			counts[name] = replaced{}
			for _, one := range done {
				counts[name] = replaced{one.Count}
			}
		}
		return nil
	})
	if errors.Is(err, &sdk.Error{Code: sdk.CodeNotSupported}) {
		err = files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) (err error) {
			for _, name := range slices.Sorted(maps.Keys(body)) {
				if counts[name], err = replaceByWriting(ctx, files, instanceID, pathOf(name), body[name].Old, body[name].New); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if query.Get("verbose") == "true" {
		return http.StatusOK, counts, err
	}
	return http.StatusOK, rest.None{}, err
}

// listDirectory lists what is in a directory, parents before their children. Links are
// told and not followed.
func (d execd) listDirectory(ctx context.Context, c rest.Call[rest.None]) (int, []fileInfo, error) {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil || query.Get("path") == "" {
		return 0, nil, refused("path", "is required")
	}
	depth := 1
	if query.Has("depth") {
		if depth, err = strconv.Atoi(query.Get("depth")); err != nil || depth < 0 {
			return 0, nil, refused("depth", "must be a number, 0 at least")
		}
	}
	var entries []fileInfo
	err = files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		root, err := files.StatFile(ctx, instanceID, pathOf(query.Get("path")))
		if err != nil {
			return err
		}
		if root.Type != sdk.FileDirectory {
			return refused("path", "is no directory")
		}
		entries = []fileInfo{}
		if depth == 0 {
			return nil
		}
		entries, err = list(ctx, files, sdk.ListFilesRequest{InstanceID: instanceID, Path: root.Path, Depth: min(depth, anyDepth)}, func(sdk.FileInfo) bool { return true })
		return err
	})
	return http.StatusOK, entries, err
}

// directoryMode is that of a directory whose maker says nothing.
const directoryMode = 0o755

// ensureDirectory makes a directory and its parents unless it is there. Providers make
// none where a file system begins, which clients may name all the same.
func ensureDirectory(ctx context.Context, files sdk.Files, instanceID, name string, mode fs.FileMode) error {
	if info, err := files.StatFile(ctx, instanceID, name); err == nil && info.Type == sdk.FileDirectory {
		return nil
	}
	_, err := files.MakeDirectory(ctx, instanceID, name, mode)
	return err
}

// makeDirectories makes directories and their parents. Those that are there stay as they
// are: clients send a mode whether they were told one or not.
func (d execd) makeDirectories(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	modes, err := modesOf(c.Body, directoryMode)
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusOK, rest.None{}, files(ctx, d, c.Tenant, c.Path["id"], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		for _, name := range slices.Sorted(maps.Keys(modes)) {
			if err := ensureDirectory(ctx, files, instanceID, pathOf(name), modes[name]); err != nil {
				return err
			}
		}
		return nil
	})
}
