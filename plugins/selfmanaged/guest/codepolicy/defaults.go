package codepolicy

// The default rules. They follow the list of the analyser that this one replaces
// (docs/security.md), less what made it refuse harmless code, and with what got
// around it.
func defaultPython() Rules {
	return Rules{
		Imports: []string{
			"builtins", "ctypes", "ftplib", "http.client", "imp", "marshal", "multiprocessing", "os", "pickle",
			"pty", "runpy", "shutil", "socket", "subprocess", "telnetlib", "threading",
		},
		Calls: []string{
			"__import__", "compile", "eval", "exec", "globals", "input", "locals",
			"asyncio.create_subprocess_*", "asyncio.subprocess",
			"code.Interactive*", "code.interact", "gc.get_objects", "gc.get_referrers",
			"importlib._bootstrap*", "importlib.machinery", "importlib.util.module_from_spec", "importlib.util.spec_from_*",
			"os.chdir", "os.chmod", "os.chown", "os.exec*", "os.fork*", "os.kill*", "os.popen", "os.posix_spawn*",
			"os.remove", "os.removedirs", "os.rename*", "os.rmdir", "os.spawn*", "os.system", "os.unlink",
			"pickle.dump", "pickle.dumps", "pickle.load", "pickle.loads", "pkgutil.resolve_name",
			"shutil.rmtree", "subprocess.Popen", "subprocess.call",
			"sys._current_frames", "sys._getframe", "sys.meta_path", "sys.modules", "sys.path_hooks", "sys.setprofile", "sys.settrace",
			"types.CodeType", "types.FunctionType",
		},
		Attributes: []string{
			"__base__", "__bases__", "__builtins__", "__closure__", "__code__", "__getattribute__", "__globals__",
			"__loader__", "__mro__", "__subclasses__", "ag_frame", "cr_frame", "exec_module", "f_back", "f_builtins",
			"f_globals", "f_locals", "gi_frame", "load_module", "mro", "tb_frame",
		},
		Paths: []string{"/boot", "/etc", "/proc", "/root", "/run", "/sys"},
	}
}

func defaultJavaScript() Rules {
	return Rules{
		Imports: []string{"child_process", "cluster", "fs", "inspector", "module", "repl", "vm", "wasi", "worker_threads"},
		Calls: []string{
			"Function", "eval", "process._linkedBinding", "process.binding", "process.dlopen", "process.kill", "process.mainModule",
		},
		Attributes: []string{"constructor"},
	}
}
