package audited

import "regexp"

// The operations, as the log names them.
const (
	OpCreate         = "create_instance"
	OpDestroy        = "destroy_instance"
	OpPause          = "pause_instance"
	OpResume         = "resume_instance"
	OpSetTTL         = "set_ttl"
	OpExecute        = "execute_code"
	OpInterrupt      = "interrupt_execution"
	OpInstall        = "install_packages"
	OpCreateContext  = "create_context"
	OpRestartContext = "restart_context"
	OpDeleteContext  = "delete_context"
	OpCommand        = "run_command"
	OpInput          = "write_stdin"
	OpSignal         = "signal_command"
	OpWriteFile      = "write_file"
	OpWriteArchive   = "write_archive"
	OpMakeDirectory  = "make_directory"
	OpSetFileMode    = "set_file_mode"
	OpMoveFile       = "move_file"
	OpCopyFile       = "copy_file"
	OpRemoveFile     = "remove_file"
	OpReplaceInFiles = "replace_in_files"
	OpConnect        = "connect_port"
	// OpReload and OpReplacePlugin change the broker itself, OpTry starts a provider
	// beside those that it has.
	OpReload        = "change_configuration"
	OpReplacePlugin = "replace_plugin"
	OpTry           = "try_provider"
)

// oneShot is what the effect of an execution covers whose instance is made for it.
var oneShot = []string{OpCreate, OpExecute, OpDestroy}

// packageName is the beginning of a requirement, up to where an address may begin.
var packageName = regexp.MustCompile(`^@?[A-Za-z0-9._/-]*(\[[A-Za-z0-9,._-]*\])?([=<>!~]=?=?[A-Za-z0-9.*+_-]+)?`)
