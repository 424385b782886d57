//! `flash-sale-explorer`: see the library.

fn main() -> std::process::ExitCode {
    explorer::commands::main()
}
