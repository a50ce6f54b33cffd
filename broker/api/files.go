package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strconv"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	workspace      = "/workspace"
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

func pathParameterOf(doc string) parameter {
	return parameter{name: "path", required: true, doc: doc + " Relative paths begin at /workspace."}
}

func (s *Server) fileRoutes() {
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/files", id: "listFiles", tag: tagFiles,
		summary: "List a directory",
		details: "No symbolic link is followed.",
		query: []parameter{
			{name: "path", doc: "The directory; /workspace unless given."},
			{name: "depth", kind: integerParameter, least: 1, most: anyDepth, doc: "Levels; 1, the directory's own entries, unless given. With glob all."},
			{name: "glob", doc: "Only paths below the directory that match: *, ?, [a-z], {a,b}, and ** for any directories."},
			{name: "limit", kind: integerParameter, least: 1, most: maxListing, doc: "Entries at most; 1000 unless given."},
		},
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.listFiles)
	register(s, operation{
		method: http.MethodDelete, path: "/api/v1/instances/{id}/files", id: "removeFile", tag: tagFiles,
		summary: "Remove a file, a symbolic link or a directory",
		query: []parameter{
			pathParameterOf("What to remove."),
			{name: "recursive", kind: booleanParameter, doc: "A directory goes with all that is in it; else it must be empty."},
		},
		success: []int{http.StatusNoContent}, codes: fileCodes(),
	}, s.removeFile)
	register(s, operation{
		method: http.MethodGet, path: "/api/v1/instances/{id}/files/stat", id: "statFile", tag: tagFiles,
		summary: "Describe a file",
		details: "A symbolic link at the end of the path is described itself.",
		query:   []parameter{pathParameterOf("The file.")},
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.statFile)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files/directories", id: "makeDirectory", tag: tagFiles,
		summary: "Make a directory",
		details: "One that exists is left as it is.",
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.makeDirectory)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files/mode", id: "setFileMode", tag: tagFiles,
		summary: "Set the permission bits of a file or directory",
		details: "A symbolic link at the end of the path is followed, and what it leads to is described. What is in a directory keeps its own.",
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.setFileMode)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files/move", id: "moveFile", tag: tagFiles,
		summary: "Move or rename a file or directory",
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.moveFile(sdk.Files.MoveFile))
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files/copy", id: "copyFile", tag: tagFiles,
		summary: "Copy a file, or a directory with all that is in it",
		details: "It appears whole or not at all. Symbolic links are copied as such.",
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.moveFile(sdk.Files.CopyFile))
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files/search", id: "searchFiles", tag: tagFiles,
		summary: "Find text in files",
		details: "Line by line; files with a NUL near their beginning are passed over.",
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.searchFiles)
	register(s, operation{
		method: http.MethodPost, path: "/api/v1/instances/{id}/files/replace", id: "replaceInFiles", tag: tagFiles,
		summary: "Replace a text in files",
		details: "Each file is changed whole or not at all. If one fails, those before it are changed.",
		success: []int{http.StatusOK}, codes: fileCodes(),
	}, s.replaceInFiles)
	s.fileStreams()
	s.watchRoutes()
}

func (s *Server) statFile(ctx context.Context, c call[none]) (int, File, error) {
	var file File
	err := leased(ctx, s, c.tenant, c.id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		info, err := files.StatFile(ctx, instanceID, c.query.text("path"))
		file = fileOf(info)
		return err
	})
	return http.StatusOK, file, err
}

// errListFull ends a list that has grown too long.
var errListFull = errors.New("the list is full")

func (s *Server) listFiles(ctx context.Context, c call[none]) (int, FileList, error) {
	req := sdk.ListFilesRequest{
		Path: c.query.text("path"), Glob: c.query.text("glob"),
		Depth: int(c.query.integer("depth", 1)), Limit: int(c.query.integer("limit", defaultListing)),
	}
	if req.Path == "" {
		req.Path = workspace
	}
	if req.Glob != "" && !c.query.given("depth") {
		req.Depth = anyDepth
	}
	list, size := FileList{Files: []File{}}, 0
	err := leased(ctx, s, c.tenant, c.id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) (err error) {
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

func (s *Server) removeFile(ctx context.Context, c call[none]) (int, none, error) {
	return http.StatusNoContent, none{}, leased(ctx, s, c.tenant, c.id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		return files.RemoveFile(ctx, instanceID, c.query.text("path"), c.query.boolean("recursive"))
	})
}

func (s *Server) makeDirectory(ctx context.Context, c call[MakeDirectoryRequest]) (int, File, error) {
	mode, err := modeOf(c.body.Mode)
	if err != nil {
		return 0, File{}, err
	}
	var file File
	err = leased(ctx, s, c.tenant, c.id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
		info, err := files.MakeDirectory(ctx, instanceID, c.body.Path, mode)
		file = fileOf(info)
		return err
	})
	return http.StatusOK, file, err
}

func (s *Server) setFileMode(ctx context.Context, c call[SetFileModeRequest]) (int, File, error) {
	mode, err := modeOf(c.body.Mode)
	if err != nil {
		return 0, File{}, err
	}
	var file File
	err = leased(ctx, s, c.tenant, c.id, sdk.CapabilityFileMode, func(ctx context.Context, files sdk.FileModeSetter, instanceID string) error {
		info, err := files.SetFileMode(ctx, instanceID, c.body.Path, mode)
		file = fileOf(info)
		return err
	})
	return http.StatusOK, file, err
}

// moveFile is for both that take a MoveFileRequest.
func (s *Server) moveFile(move func(sdk.Files, context.Context, sdk.MoveFileRequest) (sdk.FileInfo, error)) func(context.Context, call[MoveFileRequest]) (int, File, error) {
	return func(ctx context.Context, c call[MoveFileRequest]) (int, File, error) {
		var file File
		err := leased(ctx, s, c.tenant, c.id, sdk.CapabilityFiles, func(ctx context.Context, files sdk.Files, instanceID string) error {
			info, err := move(files, ctx, sdk.MoveFileRequest{InstanceID: instanceID, From: c.body.From, To: c.body.To, Overwrite: c.body.Overwrite})
			file = fileOf(info)
			return err
		})
		return http.StatusOK, file, err
	}
}

func (s *Server) searchFiles(ctx context.Context, c call[SearchFilesRequest]) (int, FileMatchList, error) {
	req := sdk.SearchFilesRequest{
		Path: c.body.Path, Pattern: c.body.Pattern, Literal: c.body.Literal, IgnoreCase: c.body.IgnoreCase, Glob: c.body.Glob, Limit: c.body.Limit,
	}
	if req.Path == "" {
		req.Path = workspace
	}
	if req.Limit == 0 {
		req.Limit = defaultMatches
	}
	list, size := FileMatchList{Matches: []FileMatch{}}, 0
	err := leased(ctx, s, c.tenant, c.id, sdk.CapabilityFileSearch, func(ctx context.Context, files sdk.FileSearcher, instanceID string) (err error) {
		req.InstanceID = instanceID
		list.Truncated, err = files.SearchFiles(ctx, req, func(matches []sdk.FileMatch) error {
			for _, m := range matches {
				if size += len(m.Path) + len(m.Text); size > maxListingBytes {
					return errListFull
				}
				list.Matches = append(list.Matches, FileMatch{Path: m.Path, Line: m.Line, Column: m.Column, Text: m.Text})
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

func (s *Server) replaceInFiles(ctx context.Context, c call[ReplaceInFilesRequest]) (int, FileReplacementList, error) {
	list := FileReplacementList{Files: []FileReplacement{}}
	err := leased(ctx, s, c.tenant, c.id, sdk.CapabilityFileSearch, func(ctx context.Context, files sdk.FileSearcher, instanceID string) error {
		replaced, err := files.ReplaceInFiles(ctx, sdk.ReplaceInFilesRequest{InstanceID: instanceID, Paths: c.body.Paths, Old: c.body.Old, New: c.body.New})
		for _, r := range replaced {
			list.Files = append(list.Files, FileReplacement{Path: r.Path, Count: r.Count})
		}
		return err
	})
	return http.StatusOK, list, err
}

func fileOf(info sdk.FileInfo) File {
	f := File{Path: info.Path, Type: string(info.Type), Size: info.Size, Mode: fmt.Sprintf("%04o", info.Mode.Perm()), Target: info.Target}
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
