use std::rc::Rc;

// Plain values say neither that it went well nor that it did not.
#[runtime::main(threads = 2)]
async fn number() -> u32 {
    1
}

// It cannot leave its thread.
#[runtime::main(threads = "auto")]
async fn not_send() -> Result<(), Rc<str>> {
    Ok(())
}

#[runtime::main(threads = 1, pin = true)]
async fn boxed() -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

// One thread is the calling one.
#[runtime::main(threads = 1)]
async fn one() -> Rc<str> {
    Rc::from("")
}

// The body is checked as without threads.
#[runtime::main(threads = 2)]
async fn mismatch() -> Result<(), std::io::Error> {
    "text"
}

fn main() {
    let _text: &str = one();
}
