struct Answer;

#[runtime::main]
async fn main() -> Answer {
    Answer
}
