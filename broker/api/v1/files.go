package v1

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

const (
	defaultListing = 1000
	defaultMatches = 100
	maxListing     = 10_000
	// anyDepth is for a listing that a glob selects from.
	anyDepth = 256
	// maxListingBytes bounds the text of a list, whatever its limit.
	maxListingBytes = 8 << 20
)

// fileCodes are what a provider may answer to calls about files.
func fileCodes() []sdk.Code {
	return append(providerCodes(), sdk.CodeInvalidRequest, sdk.CodeNotAllowed, sdk.CodeNotFound, sdk.CodeConflict)
}

// fileRoutes are about the files of an instance, or those of a volume.
type fileRoutes struct {
	instances lending.Instances
	of        fileOwner
}

// fileOwner is what has files: where its routes are, and how they are named.
type fileOwner struct {
	path, parameter string
	// root is where relative paths begin.
	root string
	// suffix is in the names of the operations.
	suffix string
}

var (
	filesOfInstance = fileOwner{path: "/api/v1/instances/{id}", parameter: "id", root: "/workspace"}
	filesOfVolume   = fileOwner{path: pathVolumes + "/{volume}", parameter: "volume", root: "/", suffix: "OfVolume"}
)

func (o fileOwner) operation(id string) string { return id + o.suffix }

// doc is a text about the files of an instance as one about these.
func (o fileOwner) doc(text string) string {
	return strings.ReplaceAll(text, filesOfInstance.root, o.root)
}

func (o fileOwner) pathParameter(doc string) rest.Parameter {
	return rest.Parameter{Name: "path", Required: true, Doc: doc + " Relative paths begin at " + o.root + "."}
}

func (h fileRoutes) register(a *rest.API) {
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: h.of.path + "/files", ID: h.of.operation("listFiles"), Tag: tagFiles,
		Summary: "List a directory",
		Details: "No symbolic link is followed.",
		Query: []rest.Parameter{
			{Name: "path", Doc: h.of.doc("The directory; /workspace unless given.")},
			{Name: "depth", Kind: rest.Integer, Least: 1, Most: anyDepth, Doc: "Levels; 1, the directory's own entries, unless given. With glob all."},
			{Name: "glob", Doc: "Only paths below the directory that match: *, ?, [a-z], {a,b}, and ** for any directories."},
			{Name: "limit", Kind: rest.Integer, Least: 1, Most: maxListing, Doc: "Entries at most; 1000 unless given."},
		},
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.listFiles)
	rest.Register(a, rest.Operation{
		Method: http.MethodDelete, Path: h.of.path + "/files", ID: h.of.operation("removeFile"), Tag: tagFiles,
		Summary: "Remove a file, a symbolic link or a directory",
		Query: []rest.Parameter{
			h.of.pathParameter("What to remove."),
			{Name: "recursive", Kind: rest.Boolean, Doc: "A directory goes with all that is in it; else it must be empty."},
		},
		Success: []int{http.StatusNoContent}, Codes: fileCodes(),
	}, h.removeFile)
	rest.Register(a, rest.Operation{
		Method: http.MethodGet, Path: h.of.path + "/files/stat", ID: h.of.operation("statFile"), Tag: tagFiles,
		Summary: "Describe a file",
		Details: "A symbolic link at the end of the path is described itself.",
		Query:   []rest.Parameter{h.of.pathParameter("The file.")},
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.statFile)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files/directories", ID: h.of.operation("makeDirectory"), Tag: tagFiles,
		Summary: "Make a directory",
		Details: "One that exists is left as it is.",
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.makeDirectory)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files/mode", ID: h.of.operation("setFileMode"), Tag: tagFiles,
		Summary: "Set the permission bits of a file or directory",
		Details: "A symbolic link at the end of the path is followed, and what it leads to is described. What is in a directory keeps its own.",
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.setFileMode)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files/move", ID: h.of.operation("moveFile"), Tag: tagFiles,
		Summary: "Move or rename a file or directory",
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.moveFile(sdk.Files.MoveFile))
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files/copy", ID: h.of.operation("copyFile"), Tag: tagFiles,
		Summary: "Copy a file, or a directory with all that is in it",
		Details: "It appears whole or not at all. Symbolic links are copied as such.",
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.moveFile(sdk.Files.CopyFile))
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files/search", ID: h.of.operation("searchFiles"), Tag: tagFiles,
		Summary: "Find text in files",
		Details: "Line by line; files with a NUL near their beginning are passed over.",
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.searchFiles)
	rest.Register(a, rest.Operation{
		Method: http.MethodPost, Path: h.of.path + "/files/replace", ID: h.of.operation("replaceInFiles"), Tag: tagFiles,
		Summary: "Replace a text in files",
		Details: "Each file is changed whole or not at all. If one fails, those before it are changed.",
		Success: []int{http.StatusOK}, Codes: fileCodes(),
	}, h.replaceInFiles)
	h.registerTransfers(a)
	if h.of == filesOfInstance { // nobody is told what happens in a volume that no instance has
		h.registerWatch(a)
	}
}

func (h fileRoutes) statFile(ctx context.Context, c rest.Call[rest.None]) (int, client.File, error) {
	var file client.File
	err := lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		info, err := files.StatFile(ctx, instanceID, c.Query.Text("path"))
		file = fileOf(info)
		return err
	})
	return http.StatusOK, file, err
}

// errListFull ends a list that has grown too long.
var errListFull = errors.New("the list is full")

func (h fileRoutes) listFiles(ctx context.Context, c rest.Call[rest.None]) (int, client.FileList, error) {
	req := sdk.ListFilesRequest{
		Path: c.Query.Text("path"), Glob: c.Query.Text("glob"),
		Depth: int(c.Query.Integer("depth", 1)), Limit: int(c.Query.Integer("limit", defaultListing)),
	}
	if req.Path == "" {
		req.Path = h.of.root
	}
	if req.Glob != "" && !c.Query.Given("depth") {
		req.Depth = anyDepth
	}
	list, size := client.FileList{Files: []client.File{}}, 0
	err := lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) (err error) {
		req.InstanceID = instanceID
		list.Truncated, err = files.ListFiles(ctx, req, func(infos []sdk.FileInfo) error {
			for _, info := range infos {
				if size += len(info.Path) + len(info.Target); size > maxListingBytes {
					return errListFull
				}
				list.Files = append(list.Files, fileOf(info))
			}
			return nil
		})
		if errors.Is(err, errListFull) {
			list.Truncated, err = true, nil
		}
		return err
	})
	return http.StatusOK, list, err
}

func (h fileRoutes) removeFile(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusNoContent, rest.None{}, lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		return files.RemoveFile(ctx, instanceID, c.Query.Text("path"), c.Query.Boolean("recursive"))
	})
}

func (h fileRoutes) makeDirectory(ctx context.Context, c rest.Call[client.MakeDirectoryRequest]) (int, client.File, error) {
	mode, err := modeOf(c.Body.Mode)
	if err != nil {
		return 0, client.File{}, err
	}
	var file client.File
	err = lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		info, err := files.MakeDirectory(ctx, instanceID, c.Body.Path, mode)
		file = fileOf(info)
		return err
	})
	return http.StatusOK, file, err
}

func (h fileRoutes) setFileMode(ctx context.Context, c rest.Call[client.SetFileModeRequest]) (int, client.File, error) {
	mode, err := modeOf(c.Body.Mode)
	if err != nil {
		return 0, client.File{}, err
	}
	var file client.File
	err = lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFileMode, func(ctx context.Context, files sdk.FileModeSetter, instanceID string) error {
		info, err := files.SetFileMode(ctx, instanceID, c.Body.Path, mode)
		file = fileOf(info)
		return err
	})
	return http.StatusOK, file, err
}

// moveFile is for both that take a MoveFileRequest.
func (h fileRoutes) moveFile(move func(sdk.Files, context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error)) func(context.Context, rest.Call[client.MoveFileRequest]) (int, client.File, error) {
	return func(ctx context.Context, c rest.Call[client.MoveFileRequest]) (int, client.File, error) {
		var file client.File
		err := lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
			info, err := move(files, ctx, sdk.MoveFileRequest{InstanceID: instanceID, From: c.Body.From, To: c.Body.To, Overwrite: c.Body.Overwrite})
			file = fileOf(info)
			return err
		})
		return http.StatusOK, file, err
	}
}

func (h fileRoutes) searchFiles(ctx context.Context, c rest.Call[client.SearchFilesRequest]) (int, client.FileMatchList, error) {
	req := sdk.SearchFilesRequest{
		Path: c.Body.Path, Pattern: c.Body.Pattern, Literal: c.Body.Literal, IgnoreCase: c.Body.IgnoreCase, Glob: c.Body.Glob, Limit: c.Body.Limit,
	}
	if req.Path == "" {
		req.Path = h.of.root
	}
	if req.Limit == 0 {
		req.Limit = defaultMatches
	}
	list, size := client.FileMatchList{Matches: []client.FileMatch{}}, 0
	err := lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFileSearch, func(ctx context.Context, files sdk.FileSearcher, instanceID string) (err error) {
		req.InstanceID = instanceID
		list.Truncated, err = files.SearchFiles(ctx, req, func(matches []sdk.FileMatch) error {
			for _, m := range matches {
				if size += len(m.Path) + len(m.Text); size > maxListingBytes {
					return errListFull
				}
				list.Matches = append(list.Matches, client.FileMatch{Path: m.Path, Line: m.Line, Column: m.Column, Text: m.Text})
			}
			return nil
		})
		if errors.Is(err, errListFull) {
			list.Truncated, err = true, nil
		}
		return err
	})
	return http.StatusOK, list, err
}

func (h fileRoutes) replaceInFiles(ctx context.Context, c rest.Call[client.ReplaceInFilesRequest]) (int, client.FileReplacementList, error) {
	list := client.FileReplacementList{Files: []client.FileReplacement{}}
	err := lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFileSearch, func(ctx context.Context, files sdk.FileSearcher, instanceID string) error {
		replaced, err := files.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{InstanceID: instanceID, Paths: c.Body.Paths, Old: c.Body.Old, New: c.Body.New})
		for _, r := range replaced {
			list.Files = append(list.Files, client.FileReplacement{Path: r.Path, Count: r.Count})
		}
		return err
	})
	return http.StatusOK, list, err
}

func fileOf(info sdk.FileInfo) client.File {
	f := client.File{Path: info.Path, Type: string(info.Type), Size: info.Size, Mode: fmt.Sprintf("%04o", info.Mode.Perm()), Target: info.Target}
	if !info.ModifiedAt.IsZero() {
		at := info.ModifiedAt.UTC()
		f.ModifiedAt = &at
	}
	return f
}

// modeOf reads permission bits; "" gives 0.
func modeOf(text string) (fs.FileMode, error) {
	if text == "" {
		return 0, nil
	}
	bits, err := strconv.ParseUint(text, 8, 32)
	if err != nil || len(text) > 4 || bits > 0o777 {
		return 0, sdk.FieldErrorf(sdk.CodeInvalidRequest, "mode", "must be three octal digits, such as 644")
	}
	return fs.FileMode(bits), nil
}

func (h fileRoutes) registerWatch(a *rest.API) {
	rest.StreamEvents(a, rest.Operation{
		Method: http.MethodGet, Path: h.of.path + "/files/watch", ID: h.of.operation("watchFiles"), Tag: tagFiles,
		Summary: "Hear of changes of files",
		Details: "Events until you close the connection or the instance's time is over. It is a use of the instance, which lives meanwhile, but not beyond its maximum lifetime.",
		Query: []rest.Parameter{
			{Name: "path", Doc: h.of.doc("The directory; /workspace unless given.")},
			{Name: "recursive", Kind: rest.Boolean, Doc: "Whatever is below it too."},
		},
		Success: []int{http.StatusOK}, Codes: append(fileCodes(), sdk.CodeQuotaExceeded),
		Events: []rest.Event{
			rest.EventOf[client.WatchReady](client.EventReady, "The first event: changes are told from now on."),
			rest.EventOf[client.FileChange](client.EventChange, "A change."),
			rest.EventOf[client.Problem](rest.EventError, "The last event, if the watch cannot go on: the problem."),
		},
	}, h.watchFiles)
}

func (h fileRoutes) watchFiles(ctx context.Context, c rest.Call[rest.None], to *rest.EventStream) error {
	req := sdk.WatchFilesRequest{Path: cmp.Or(c.Query.Text("path"), h.of.root), Recursive: c.Query.Boolean("recursive")}
	return lending.Use(ctx, h.instances, c.Tenant, c.Path[h.of.parameter], sdk.CapabilityFileWatch, func(ctx context.Context, files sdk.FileWatcher, instanceID string) error {
		req.InstanceID = instanceID
		return files.WatchFiles(ctx, req,
			func() error { return to.Send(ctx, client.EventReady, client.WatchReady{}) },
			func(changes []sdk.FileChange) error {
				for _, change := range changes {
					if err := to.Send(ctx, client.EventChange, client.FileChange{Kind: string(change.Kind), Path: change.Path}); err != nil {
						return err
					}
				}
				return nil
			})
	})
}
